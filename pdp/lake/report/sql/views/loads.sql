-- Loads through views, from what callers asked: the reader, the chain of views with their owners, and the object.
WITH asked AS (
  SELECT id, time, day, explode(from_json(asked, 'STRUCT<rows: ARRAY<STRUCT<
    principal: STRING, action: STRING, resource: STRING, allowed: BOOLEAN, `by`: STRING, entry: STRING>>>').rows) AS row
  FROM requests
  WHERE asked LIKE '%chain%'
)
SELECT
  id, time, day, row.principal AS reader, row.action AS action, substring_index(row.resource, '@', 1) AS object,
  row.allowed AS allowed, row.`by` AS reason,
  from_json(get_json_object(row.entry, '$.load.chain'),
    'ARRAY<STRUCT<view: STRING, owner: STRING, engine: STRING>>') AS chain
FROM asked
WHERE get_json_object(row.entry, '$.load.chain') IS NOT NULL
