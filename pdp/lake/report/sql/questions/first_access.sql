-- title: First-time access
-- text: Principals who read or wrote in a place for the first time in the last days, though they were active before.
-- order: first_time DESC, principal, place
-- sum: accesses
SELECT principal, place, first_time, object, accesses, objects, reason
FROM (
  SELECT
    principal, concat_ws('/', slice(split(path, '/'), 1, greatest(size(split(path, '/')) - 1, 1))) AS place,
    min(first_time) AS first_time, min_by(object, first_time) AS object, sum(checks) AS accesses,
    count(DISTINCT path) AS objects, min_by(reason, first_time) AS reason
  FROM accesses
  WHERE allowed AND kind IN ('read', 'write') AND NOT delegated AND type IN ('table', 'view', 'generic_table', 'dataset')
  GROUP BY ALL
) JOIN (SELECT principal, min(first_time) AS seen FROM accesses GROUP BY principal) USING (principal)
WHERE first_time >= timestampadd(DAY, -:days, :end_time) AND seen < timestampadd(DAY, -:days, :end_time)
