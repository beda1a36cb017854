-- title: Grants without use
-- text: Grants that are in effect and determined no decision in the last days. Another grant or rule may have determined the same decisions: `pdp pipeline suggest` proves what can go.
-- order: ever, last_used NULLS FIRST, principal, object, privilege
WITH RECURSIVE edges AS (
  SELECT principal AS member, object AS role FROM grants_now WHERE object LIKE 'role:%' AND privilege IN ('assignee', 'ownership')
),
above(member, role, depth) AS (
  SELECT member, role, 1 FROM edges
  UNION ALL
  SELECT above.member, edges.role, above.depth + 1 FROM above JOIN edges ON edges.member = above.role WHERE above.depth < 12
),
closure AS (SELECT DISTINCT member, role FROM above),
fired AS (
  SELECT holder, principal, reason, substring_index(reason, ' via ', -1) AS via, max(last_time) AS last_time,
    sum(checks) AS checks
  FROM accesses WHERE allowed AND reason LIKE 'grants:%' GROUP BY ALL
),
direct AS (SELECT reason, max(last_time) AS last_time, sum(checks) AS checks FROM fired GROUP BY reason),
users AS (  -- for each membership, the users that have it
  SELECT edges.member, edges.role, edges.member AS user FROM edges
  UNION SELECT edges.member, edges.role, closure.member FROM edges JOIN closure ON closure.role = edges.member
),
reached AS (
  SELECT edges.member, edges.role, edges.role AS via FROM edges
  UNION SELECT edges.member, edges.role, closure.role FROM edges JOIN closure ON closure.member = edges.role
),
member_use AS (
  SELECT users.member, users.role, max(fired.last_time) AS last_time, sum(fired.checks) AS checks
  FROM users JOIN reached ON reached.member = users.member AND reached.role = users.role
  JOIN fired ON fired.via = reached.via AND (fired.holder = users.user OR fired.principal = users.user)
  GROUP BY users.member, users.role
),
written AS (
  SELECT actor, max(time) AS last_time FROM events WHERE event = 'management' AND allowed GROUP BY actor
),
run AS (  -- views that ran with the rights of their owners
  SELECT step.owner, substring_index(step.view, '@', 1) AS object, max(time) AS last_time
  FROM (SELECT explode(chain) AS step, time FROM loads) WHERE step.owner <> '' GROUP BY ALL
),
active AS (SELECT DISTINCT holder AS user FROM accesses WHERE day > date_sub(:end, :days)),
member_counts AS (
  SELECT role, count(DISTINCT member) AS members, count(DISTINCT active.user) AS active_members
  FROM closure LEFT JOIN active ON active.user = closure.member
  WHERE member LIKE 'user:%' GROUP BY role
)
SELECT
  g.principal, g.privilege, g.object, g.since, greatest(d.last_time, m.last_time, w.last_time, run.last_time) AS last_used,
  coalesce(d.checks, m.checks, 0) AS ever,
  if(g.principal LIKE 'role:%', coalesce(c.members, 0), 1) AS members,
  if(g.principal LIKE 'role:%', coalesce(c.active_members, 0), CAST(active.user IS NOT NULL AS INT)) AS active_members,
  nullif(g.actor, '') AS granted_by
FROM grants_now g
LEFT JOIN direct d ON d.reason = concat('grants:', g.privilege, ' on ', g.object, ' via ', g.principal)
LEFT JOIN member_use m ON m.member = g.principal AND m.role = g.object
LEFT JOIN written w ON w.actor = g.principal AND g.privilege NOT IN ('select', 'describe', 'modify', 'create', 'assignee')
LEFT JOIN run ON run.owner = g.principal AND run.object = g.object AND g.privilege = 'ownership'
LEFT JOIN member_counts c ON c.role = g.principal
LEFT JOIN active ON active.user = g.principal
WHERE g.since < timestampadd(DAY, -:days, :end_time)
  AND coalesce(greatest(d.last_time, m.last_time, w.last_time, run.last_time) < timestampadd(DAY, -:days, :end_time), true)
