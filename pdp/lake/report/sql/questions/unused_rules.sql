-- title: Rules without use
-- text: Rules in effect that determined no decision in the last days. A reason names one rule: a rule that another rule needs beside itself may stand here, too.
-- order: ever, rule
WITH policies AS (
  SELECT
    digest,
    from_json(text, 'STRUCT<rules: MAP<STRING, STRING>, forbid: MAP<STRING, STRING>, rowAccess: ARRAY<STRUCT<
      policies: ARRAY<STRUCT<id: STRING, `table`: STRING, filter: STRING>>,
      masks: ARRAY<STRUCT<id: STRING, `table`: STRING, column: STRING>>>>>') AS p
  FROM bundles
),
rules AS (
  SELECT digest, 'permits' AS effect, id AS rule, text FROM policies LATERAL VIEW explode(p.rules) AS id, text
  UNION ALL SELECT digest, 'forbids', id, text FROM policies LATERAL VIEW explode(p.forbid) AS id, text
  UNION ALL SELECT digest, 'shows rows', r.id, concat(r.`table`, ': ', r.filter)
    FROM policies LATERAL VIEW explode(flatten(p.rowAccess.policies)) AS r
  UNION ALL SELECT digest, 'masks', m.id, concat(m.`table`, '.', m.column)
    FROM policies LATERAL VIEW explode(flatten(p.rowAccess.masks)) AS m
),
served AS (
  SELECT element_at(split(revision, '\\.'), -1) AS digest, min(time) AS since, max(time) AS until FROM requests GROUP BY 1
),
newest AS (SELECT max_by(digest, until) AS digest FROM served),
fired AS (
  SELECT
    CASE WHEN reason LIKE 'row_access:%' THEN 'row' WHEN allowed THEN 'permits' ELSE 'forbids' END AS effect,
    explode(split(substring(reason, instr(reason, ':') + 1), ',')) AS rule, max(last_time) AS last_time,
    sum(checks) AS checks
  FROM usage WHERE reason LIKE 'cel:%' OR reason LIKE 'row_access:%' GROUP BY ALL
),
masked AS (
  SELECT explode(map_values(from_json(masks, 'MAP<STRING, STRING>'))) AS reason, time FROM requests WHERE masks IS NOT NULL
),
hits AS (
  SELECT effect, rule, max(last_time) AS last_time, sum(checks) AS checks FROM fired GROUP BY effect, rule
  UNION ALL SELECT 'masks', substring(reason, 12), max(time), count(*) FROM masked WHERE reason LIKE 'row_access:%' GROUP BY reason
),
raised AS (SELECT rule, sum(checks) AS checks FROM (SELECT explode(errors) AS rule, checks FROM usage) GROUP BY rule),
ages AS (SELECT rules.effect, rules.rule, min(served.since) AS since FROM rules JOIN served USING (digest) GROUP BY 1, 2)
SELECT
  rules.rule, rules.effect, rules.text, ages.since, hits.last_time AS last_used, coalesce(hits.checks, 0) AS ever,
  coalesce(raised.checks, 0) AS raised
FROM rules JOIN newest USING (digest) JOIN ages ON ages.effect = rules.effect AND ages.rule = rules.rule
LEFT JOIN hits ON hits.rule = rules.rule AND (hits.effect = rules.effect OR (rules.effect = 'shows rows' AND hits.effect = 'row'))
LEFT JOIN raised ON raised.rule = rules.rule
WHERE ages.since < timestampadd(DAY, -:days, :end_time)
  AND coalesce(hits.last_time < timestampadd(DAY, -:days, :end_time), true)
