"""Dialect of Quarkus' configuration: properties, YAML, environment variables, profiles and expressions.

Knows no key of Nessie and no rule. Follows SmallRye Config, https://smallrye.io/smallrye-config/. A form that this
package does not read is an error, because a skipped key could be a rule.
"""
