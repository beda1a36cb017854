-- title: Dormant principals
-- text: Users with rights who made no request in the last days, and whose rights no view used.
-- order: last_time NULLS FIRST, principal
SELECT
  g.principal, s.last_time, s.checks, g.grants, g.roles, g.rights
FROM (
  SELECT
    principal, count(*) AS grants, count_if(object LIKE 'role:%') AS roles,
    concat_ws(', ', slice(array_sort(collect_list(concat(privilege, ' on ', object))), 1, 4)) AS rights
  FROM grants_now WHERE principal LIKE 'user:%' GROUP BY principal
) g LEFT JOIN (
  SELECT name, max(last_time) AS last_time, sum(checks) AS checks
  FROM (
    SELECT principal AS name, last_time, checks FROM usage
    UNION ALL SELECT holder, last_time, 0 FROM usage WHERE holder <> principal
    UNION ALL SELECT actor, time, 0 FROM events WHERE event = 'management'
  ) GROUP BY name
) s ON s.name = g.principal
WHERE coalesce(s.last_time < timestampadd(DAY, -:days, :end_time), true)
