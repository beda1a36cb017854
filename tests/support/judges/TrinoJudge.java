import io.trino.sql.parser.SqlParser;
import io.trino.sql.tree.CreateTableAsSelect;
import io.trino.sql.tree.CreateView;
import io.trino.sql.tree.CurrentCatalog;
import io.trino.sql.tree.CurrentPath;
import io.trino.sql.tree.CurrentSchema;
import io.trino.sql.tree.CurrentUser;
import io.trino.sql.tree.FunctionCall;
import io.trino.sql.tree.FunctionSpecification;
import io.trino.sql.tree.Identifier;
import io.trino.sql.tree.JsonTable;
import io.trino.sql.tree.Node;
import io.trino.sql.tree.Parameter;
import io.trino.sql.tree.QualifiedName;
import io.trino.sql.tree.QuerySpecification;
import io.trino.sql.tree.Statement;
import io.trino.sql.tree.Table;
import io.trino.sql.tree.TableFunctionInvocation;
import io.trino.sql.tree.TruncateTable;

/** Parser of Trino. */
final class TrinoJudge extends Judge {
    private final SqlParser parser = new SqlParser();

    public static void main(String[] arguments) throws Exception {
        new TrinoJudge().run();
    }

    @Override
    Object parse(String text) {
        return parser.createStatement(text);
    }

    @Override
    boolean isNode(Object part) {
        return part instanceof Node || part.getClass().getPackage() == Node.class.getPackage();
    }

    @Override
    void look(Object node) throws Exception {
        switch (node) {
            case Table table -> table(table, table.getName().getParts());
            case CreateTableAsSelect create -> name("target", create.getName());
            case CreateView create -> name("target", create.getName());
            case TruncateTable truncate -> name("target", truncate.getTableName());
            case TableFunctionInvocation call -> name("table_function", call.getName());
            case JsonTable table -> note("table_function", "json_table");
            case FunctionSpecification function -> note("table_function", "with function");
            case FunctionCall call -> name("function", call.getName());
            case Parameter parameter -> note("parameter", "?");
            case CurrentUser user -> note("session", "current_user");
            case CurrentCatalog catalog -> note("session", "current_catalog");
            case CurrentSchema schema -> note("session", "current_schema");
            case CurrentPath path -> note("session", "current_path");
            case Identifier identifier -> note("column", identifier.getValue());
            default -> { }
        }
    }

    @Override
    Boolean hasCondition(Object node) {
        if (node instanceof QuerySpecification query) {
            return query.getWhere().isPresent();
        }
        return node instanceof Statement ? false : null;
    }

    private void name(String kind, QualifiedName name) {
        note(kind, name.getParts());
    }
}
