-- title: Attempts after the end of rights
-- text: Principals who lost a grant, and were denied afterwards.
-- order: denied DESC, principal
-- sum: denied
SELECT
  r.principal, r.removed, r.removed_by, r.rights, sum(a.checks) AS denied, count(DISTINCT a.object) AS objects,
  max(a.last_time) AS last_time
FROM (
  SELECT
    principal, min(time) AS removed, min_by(actor, time) AS removed_by,
    concat_ws(', ', slice(array_sort(collect_set(concat(privilege, ' on ', object))), 1, 4)) AS rights
  FROM facts WHERE kind = 'grant_removed' GROUP BY principal
) r JOIN accesses a ON a.principal = r.principal AND NOT a.allowed AND a.kind <> 'list' AND a.first_time > r.removed
GROUP BY ALL
