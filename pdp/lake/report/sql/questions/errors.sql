-- title: Errors
-- text: Requests that were refused as a whole, rules that raised, and checks that were invalid.
-- order: count DESC, problem, source
-- sum: count
SELECT
  'request refused' AS problem, concat(coalesce(surface, ''), ' ', coalesce(kind, '')) AS source,
  sum(coalesce(try_cast(get_json_object(details, '$.suppressed') AS BIGINT), 1)) AS count, count(DISTINCT day) AS days,
  min(time) AS first_time, max(time) AS last_time, max_by(nullif(get_json_object(details, '$.message'), ''), if(get_json_object(details, '$.message') <> '', time, NULL)) AS example
FROM events WHERE event = 'refusal' GROUP BY ALL
UNION ALL
SELECT 'rule raised', rule, sum(checks), count(DISTINCT day), min(first_time), max(last_time), max_by(object, last_time)
FROM (SELECT *, explode(errors) AS rule FROM usage) GROUP BY rule
UNION ALL
SELECT 'check invalid', invalid, sum(checks), count(DISTINCT day), min(first_time), max(last_time), max_by(caller, last_time)
FROM usage WHERE invalid <> '' GROUP BY invalid
UNION ALL
SELECT 'facts too old', 'store', count(*), count(DISTINCT day), min(time), max(time), max_by(id, time)
FROM requests WHERE stale HAVING count(*) > 0
