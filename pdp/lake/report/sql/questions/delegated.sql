-- title: Delegated access
-- text: Who read what through DEFINER views, and whose rights were used for it.
-- order: loads DESC, reader, object
-- sum: loads, denied
SELECT
  reader, views, owner, object, sum(loads) AS loads, sum(denied) AS denied, max(last_time) AS last_time,
  max_by(sample_id, last_time) AS sample_id
FROM (
  SELECT
    reader, concat_ws(' → ', transform(chain, v -> substr(substring_index(v.view, '@', 1), 6))) AS views,
    element_at(filter(chain, v -> v.owner <> ''), -1).owner AS owner, object, count_if(allowed) AS loads,
    count_if(NOT allowed) AS denied, max(time) AS last_time, max_by(id, time) AS sample_id
  FROM loads
  WHERE exists(chain, v -> v.owner <> '')
  GROUP BY ALL
  UNION ALL
  SELECT
    query_user, '(a view of a query engine)', holder, object, sum(if(allowed, checks, 0)), sum(if(allowed, 0, checks)),
    max(last_time), max_by(sample_id, last_time)
  FROM accesses
  WHERE delegated AND query_user IS NOT NULL AND kind = 'read'
  GROUP BY ALL
)
GROUP BY reader, views, owner, object
