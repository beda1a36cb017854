"""How Alembic runs the migrations: on the connection that the store hands it, inside the transaction it is in."""

from alembic import context

from pdp.store.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
