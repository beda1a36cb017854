-- title: Actions
-- text: Checks by action. The kind says what the action does.
-- order: checks DESC, action
-- sum: allowed, denied, checks
SELECT
  action, kind, sum(if(allowed, checks, 0)) AS allowed, sum(if(allowed, 0, checks)) AS denied, sum(checks) AS checks,
  count(DISTINCT principal) AS principals
FROM accesses
GROUP BY kind, action
