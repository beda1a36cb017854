-- title: Principals
-- text: Access by the principal that a request was about.
-- order: accesses DESC, allowed DESC, principal
-- sum: reads, writes, accesses, allowed, denied
SELECT
  principal, sum(if(allowed AND kind = 'read', checks, 0)) AS reads,
  sum(if(allowed AND kind = 'write', checks, 0)) AS writes,
  sum(if(allowed AND kind IN ('read', 'write'), checks, 0)) AS accesses, sum(if(allowed, checks, 0)) AS allowed,
  sum(if(NOT allowed AND kind <> 'list', checks, 0)) AS denied,
  count(DISTINCT if(allowed AND kind IN ('read', 'write'), path, NULL)) AS objects, count(DISTINCT day) AS days,
  min(first_time) AS first_time, max(last_time) AS last_time
FROM accesses
WHERE principal IS NOT NULL
GROUP BY principal
