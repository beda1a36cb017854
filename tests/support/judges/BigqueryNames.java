import java.util.List;

import com.google.zetasql.Analyzer;
import com.google.zetasql.AnalyzerOptions;
import com.google.zetasql.LanguageOptions;
import com.google.zetasql.SimpleCatalog;
import com.google.zetasql.SimpleColumn;
import com.google.zetasql.SimpleTable;
import com.google.zetasql.StructType.StructField;
import com.google.zetasql.Type;
import com.google.zetasql.TypeFactory;
import com.google.zetasql.ZetaSQLBuiltinFunctionOptions;
import com.google.zetasql.ZetaSQLOptions.ProductMode;
import com.google.zetasql.ZetaSQLType.TypeKind;
import com.google.zetasql.resolvedast.ResolvedNode;
import com.google.zetasql.resolvedast.ResolvedNodes;

/** Analyzer of GoogleSQL: which names are tables, and which are arrays of a source. Datasets have the names of sources. */
final class BigqueryNames extends Judge {
    private static final List<String> SOURCES = List.of("t", "u", "x", "y", "z", "tags", "parts", "st", "id");
    private final AnalyzerOptions options = new AnalyzerOptions();
    private final SimpleCatalog catalog = new SimpleCatalog("lake");

    private BigqueryNames() {
        LanguageOptions language = new LanguageOptions();
        language.enableMaximumLanguageFeatures();
        language.setSupportsAllStatementKinds();
        language.setProductMode(ProductMode.PRODUCT_EXTERNAL);
        options.setLanguageOptions(language);
        catalog.addZetaSQLFunctions(new ZetaSQLBuiltinFunctionOptions(language));
        Type text = TypeFactory.createSimpleType(TypeKind.TYPE_STRING);
        Type number = TypeFactory.createSimpleType(TypeKind.TYPE_INT64);
        Type part = TypeFactory.createStructType(List.of(
            new StructField("n", text), new StructField("tags", TypeFactory.createArrayType(text))));
        for (String name : List.of("t", "u")) {
            catalog.addSimpleTable(new SimpleTable(name, List.of(
                new SimpleColumn(name, "id", number), new SimpleColumn(name, "st", part),
                new SimpleColumn(name, "tags", TypeFactory.createArrayType(text)),
                new SimpleColumn(name, "parts", TypeFactory.createArrayType(part)))));
        }
        for (String source : SOURCES) {
            SimpleCatalog dataset = new SimpleCatalog(source);
            for (String name : List.of("tags", "parts", "st", "n")) {
                String whole = source + "." + name;
                dataset.addSimpleTable(name, new SimpleTable(whole, List.of(new SimpleColumn(whole, "n", number))));
            }
            catalog.addSimpleCatalog(dataset);
        }
    }

    public static void main(String[] arguments) throws Exception {
        new BigqueryNames().run();
    }

    @Override
    Object parse(String text) {
        return Analyzer.analyzeStatement(text, options, catalog);
    }

    @Override
    boolean isNode(Object part) {
        return part instanceof ResolvedNode;
    }

    @Override
    void look(Object node) {
        if (node instanceof ResolvedNodes.ResolvedTableScan scan) {
            note("table", scan.getTable().getFullName());
        }
        if (node instanceof ResolvedNodes.ResolvedArrayScan) {
            note("function", "array");
        }
    }

    @Override
    Boolean hasCondition(Object node) {
        return null;
    }
}
