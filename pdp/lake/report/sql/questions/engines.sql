-- title: Deciding engines
-- text: The part of the service that determined the decision, from its reason.
-- order: checks DESC, engine
-- sum: allowed, denied, checks
SELECT
  engine, sum(if(allowed, checks, 0)) AS allowed, sum(if(allowed, 0, checks)) AS denied, sum(checks) AS checks,
  count(DISTINCT reason) AS reasons
FROM (
  SELECT
    *, CASE
      WHEN reason LIKE 'grants:%' THEN 'grants'
      WHEN reason LIKE 'cel:%' AND allowed THEN 'CEL rules'
      WHEN reason LIKE 'cel:%' THEN 'CEL rules that forbid'
      WHEN reason LIKE 'config:%' THEN 'configuration'
      WHEN reason LIKE 'row_access:%' THEN 'row access'
      WHEN reason = 'default_deny' THEN 'none: denied by default'
      WHEN reason LIKE '%:%' THEN substring_index(reason, ':', 1)
      ELSE coalesce(nullif(reason, ''), 'unknown')
    END AS engine
  FROM accesses
)
GROUP BY engine
