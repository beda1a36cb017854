import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.execution.SparkSqlParser;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.Seq;

/** Parser of Spark. Names of classes are compared as text, because they differ between versions. */
final class SparkJudge extends Judge {
    private final SparkSqlParser parser = new SparkSqlParser();

    public static void main(String[] arguments) throws Exception {
        new SparkJudge().run();
    }

    @Override
    Object parse(String text) {
        return parser.parsePlan(text);
    }

    @Override
    boolean isNode(Object part) {
        return part instanceof Product;
    }

    /** Return the parts of a case class, a tuple, an option or a sequence of Scala. */
    @Override
    Iterable<?> parts(Object part) throws Exception {
        if (part instanceof scala.collection.Iterable<?> several) {
            return list(several.iterator());
        }
        return part instanceof Product product ? list(product.productIterator()) : super.parts(part);
    }

    @Override
    void look(Object node) throws Exception {
        String kind = node.getClass().getSimpleName();
        switch (kind) {
            case "UnresolvedRelation", "UnresolvedTable", "UnresolvedView", "UnresolvedTableOrView" ->
                table(node, names(node, "multipartIdentifier"));
            case "UnresolvedIdentifier" -> note("target", names(node, "nameParts"));
            case "UnresolvedTableValuedFunction" -> note("table_function", names(node, "name"));
            case "UnresolvedGenerator" -> note("table_function", field(node, "name").toString());
            case "UnresolvedFunction" -> note("function", names(node, "nameParts"));
            case "UnresolvedAttribute" -> note("column", names(node, "nameParts"));
            case "NamedParameter", "PosParameter" -> note("parameter", kind);
            case "PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier", "ScriptTransformation",
                "CompoundBody" -> note("table_function", kind);
            default -> { }
        }
        if (node instanceof Command) {
            note("command", kind);
        }
    }

    @Override
    Boolean hasCondition(Object node) {
        String kind = node.getClass().getSimpleName();
        boolean isBetween = kind.equals("SubqueryAlias") || kind.equals("RelationTimeTravel");
        return isBetween ? null : (Boolean) kind.equals("Filter");
    }

    private static Object field(Object node, String name) throws Exception {
        return node.getClass().getMethod(name).invoke(node);
    }

    private static List<String> names(Object node, String name) throws Exception {
        List<String> found = new ArrayList<>();
        list(((Seq<?>) field(node, name)).iterator()).forEach(part -> found.add(part.toString()));
        return found;
    }

    private static List<Object> list(Iterator<?> several) {
        List<Object> found = new ArrayList<>();
        while (several.hasNext()) {
            found.add(several.next());
        }
        return found;
    }
}
