-- title: Denials
-- text: Who was denied what, with the determining reason, and the privilege that would have permitted it.
-- order: checks DESC, last_time DESC, principal, object, action
-- sum: checks
SELECT
  a.principal, nullif(a.holder, a.principal) AS rights_of, a.action, a.object, a.reason,
  CASE
    WHEN a.reason LIKE 'cel:%' THEN 'none: a rule forbids it'
    WHEN a.reason = 'default_deny' THEN coalesce(p.privilege, 'a rule')
    ELSE ''
  END AS missing,
  array_join(array_sort(array_distinct(flatten(collect_list(slice(coalesce(a.errors, array()), 1, 5))))), ', ') AS raised,
  sum(a.checks) AS checks, count(DISTINCT a.day) AS days, min(a.first_time) AS first_time,
  max(a.last_time) AS last_time, max_by(a.sample_id, a.last_time) AS sample_id
FROM accesses a LEFT JOIN privileges p ON p.type = a.type AND p.action = a.action
WHERE NOT a.allowed AND a.kind <> 'list'
GROUP BY a.principal, a.holder, a.action, a.object, a.reason, p.privilege
