import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

import com.google.zetasql.AnalyzerOptions;
import com.google.zetasql.LanguageOptions;
import com.google.zetasql.PreparedExpression;
import com.google.zetasql.SimpleCatalog;
import com.google.zetasql.Value;
import com.google.zetasql.ZetaSQLBuiltinFunctionOptions;
import com.google.zetasql.ZetaSQLOptions.ProductMode;

/** Evaluator of GoogleSQL: reads expressions with a text as their value, one a line, and prints each text. */
final class BigqueryEvaluator {
    private BigqueryEvaluator() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(value(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8)));
        }
    }

    private static String value(String text) {
        LanguageOptions language = new LanguageOptions();
        language.enableMaximumLanguageFeatures();
        language.setProductMode(ProductMode.PRODUCT_EXTERNAL);
        AnalyzerOptions options = new AnalyzerOptions();
        options.setLanguageOptions(language);
        SimpleCatalog catalog = new SimpleCatalog("catalog");
        catalog.addZetaSQLFunctions(new ZetaSQLBuiltinFunctionOptions(language));
        try (PreparedExpression expression = new PreparedExpression(text)) {
            expression.prepareWithCatalog(options, catalog);
            Value found = expression.execute();
            return found.isNull() ? "NULL" : "=" + found.getStringValue();
        } catch (RuntimeException error) {
            return "error: " + String.valueOf(error.getMessage()).replace('\n', ' ');
        }
    }
}
