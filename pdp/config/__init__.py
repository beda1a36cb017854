"""Configuration: every key with its default and its text, the files of a configuration, and archives of policies.

Does not know what the keys configure. All modules are faces. `bundles` builds, signs, verifies and unpacks archives of
policies, and knows no network and no engine. `bounded_answers` and `regular_files` bound what others send and write.

`quarkus` reads the dialect of Quarkus' configuration: properties, YAML, environment variables, profiles and
expressions. It knows no key of Nessie and no rule, and follows SmallRye Config, https://smallrye.io/smallrye-config/.
An unread form is an error, because a skipped key could be a rule.
"""
