-- Paths that are views. Where a name may be a table or a view, both are checked: only one of the two is an access.
SELECT DISTINCT substr(object, 6) AS path
FROM (
  SELECT object FROM facts WHERE object LIKE 'view:%'
  UNION ALL SELECT object FROM usage WHERE asked AND object LIKE 'view:%'
  UNION ALL SELECT substring_index(view, '@', 1) FROM (SELECT explode(chain.view) AS view FROM loads)
)
