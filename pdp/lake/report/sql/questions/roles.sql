-- title: Roles
-- text: Permits by the role whose grant determined them.
-- order: accesses DESC, allowed DESC, role
-- sum: reads, writes, accesses, allowed
SELECT
  substring_index(reason, ' via ', -1) AS role, sum(if(kind = 'read', checks, 0)) AS reads,
  sum(if(kind = 'write', checks, 0)) AS writes, sum(if(kind IN ('read', 'write'), checks, 0)) AS accesses,
  sum(checks) AS allowed, count(DISTINCT holder) AS principals,
  count(DISTINCT path) AS objects, count(DISTINCT reason) AS grants, max(last_time) AS last_time
FROM accesses
WHERE allowed AND reason LIKE 'grants:% via role:%'
GROUP BY substring_index(reason, ' via ', -1)
