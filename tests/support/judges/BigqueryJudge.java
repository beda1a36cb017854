import java.util.List;

import com.google.zetasql.LanguageOptions;
import com.google.zetasql.Parser;
import com.google.zetasql.ZetaSQLOptions.LanguageFeature;
import com.google.zetasql.ZetaSQLOptions.NameResolutionMode;
import com.google.zetasql.ZetaSQLOptions.ProductMode;
import com.google.zetasql.parser.ASTNode;
import com.google.zetasql.parser.ASTNodes;

/** Parser of GoogleSQL. */
final class BigqueryJudge extends Judge {
    private final LanguageOptions options = new LanguageOptions();

    private BigqueryJudge() {
        options.enableMaximumLanguageFeatures();
        options.setSupportsAllStatementKinds();
        options.setNameResolutionMode(NameResolutionMode.NAME_RESOLUTION_DEFAULT);
        options.setProductMode(ProductMode.PRODUCT_EXTERNAL);
    }

    public static void main(String[] arguments) throws Exception {
        new BigqueryJudge().run();
    }

    @Override
    Object parse(String text) {
        return Parser.parseStatement(text, options);
    }

    @Override
    boolean isNode(Object part) {
        return part instanceof ASTNode;
    }

    @Override
    void look(Object node) throws Exception {
        switch (node) {
            case ASTNodes.ASTTablePathExpression table when table.getPathExpr() != null ->
                table(table, names(table.getPathExpr()));
            case ASTNodes.ASTTVF call -> path("table_function", call.getName());
            case ASTNodes.ASTInsertStatement insert -> path("target", insert.getTargetPath());
            case ASTNodes.ASTUpdateStatement update -> path("target", update.getTargetPath());
            case ASTNodes.ASTDeleteStatement delete -> path("target", delete.getTargetPath());
            case ASTNodes.ASTMergeStatement merge -> path("target", merge.getTargetPath());
            case ASTNodes.ASTTruncateStatement truncate -> path("target", truncate.getTargetPath());
            case ASTNodes.ASTCreateTableStmtBase create -> path("target", create.getName());
            case ASTNodes.ASTCreateViewStatementBase create -> path("target", create.getName());
            case ASTNodes.ASTFunctionCall call -> path("function", call.getFunction());
            case ASTNodes.ASTParameterExpr parameter ->
                note("parameter", parameter.getName() == null ? "?" : parameter.getName().getIdString());
            case ASTNodes.ASTSystemVariableExpr variable -> path("session", variable.getPath());
            case ASTNodes.ASTIdentifier identifier -> note("column", identifier.getIdString());
            default -> { }
        }
    }

    @Override
    Boolean hasCondition(Object node) {
        if (node instanceof ASTNodes.ASTSelect query) {
            return query.getWhereClause() != null;
        }
        return node instanceof ASTNodes.ASTStatement ? false : null;
    }

    private static List<String> names(ASTNodes.ASTPathExpression path) {
        return path.getNames().stream().map(ASTNodes.ASTIdentifier::getIdString).toList();
    }

    private void path(String kind, ASTNodes.ASTGeneralizedPathExpression name) {
        if (name instanceof ASTNodes.ASTPathExpression path) {
            note(kind, names(path));
        }
        else {
            note(kind, "a path of another kind");
        }
    }
}
