"""Tables and views of Iceberg REST catalogs, as the rewriter knows relations."""
