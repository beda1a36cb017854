-- title: Hot objects
-- text: Tables and views by how often they are read and written. The trend compares the last seven days with the seven before.
-- order: accesses DESC, object
-- sum: reads, writes, accesses, denied
SELECT
  object, sum(if(allowed AND kind = 'read', checks, 0)) AS reads,
  sum(if(allowed AND kind = 'write', checks, 0)) AS writes,
  sum(if(allowed AND kind IN ('read', 'write'), checks, 0)) AS accesses,
  sum(if(NOT allowed AND kind <> 'list', checks, 0)) AS denied,
  count(DISTINCT if(allowed AND kind IN ('read', 'write'), principal, NULL)) AS principals,
  sum(if(allowed AND kind IN ('read', 'write') AND day > date_sub(:end, 7), checks, 0)) AS last_week,
  sum(if(allowed AND kind IN ('read', 'write') AND day <= date_sub(:end, 7) AND day > date_sub(:end, 14), checks, 0))
    AS week_before,
  max(last_time) AS last_time
FROM accesses
WHERE type IN ('table', 'view', 'generic_table', 'dataset') AND kind <> 'list'
GROUP BY object
