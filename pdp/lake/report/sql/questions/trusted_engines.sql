-- title: Trusted engines
-- text: Loads through views by the engine that named their owners.
-- order: loads DESC, engine
-- sum: loads, denied
SELECT
  coalesce(engine, '') AS engine, count(*) AS loads, count_if(NOT allowed) AS denied, count(DISTINCT reader) AS readers,
  max(time) AS last_time
FROM (
  SELECT *, concat_ws(', ', array_sort(array_distinct(filter(chain.engine, e -> e <> '')))) AS engine
  FROM loads
)
WHERE engine <> ''
GROUP BY engine
