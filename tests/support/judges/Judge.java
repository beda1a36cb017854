import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Loop of one engine's parser: a statement in Base64 by line, and the things that the parser sees in a line of answer.
 *
 * A thing is its kind, and its name in Base64 with a line break between the parts. A statement that the engine does not
 * parse is a minus. Nothing is executed.
 */
abstract class Judge {
    private final StringBuilder seen = new StringBuilder();
    private final Map<Object, Object> parents = new IdentityHashMap<>();

    /** Return the tree of a statement; throw an exception for a text that the engine does not parse. */
    abstract Object parse(String text) throws Exception;

    /** Note the things of one node. */
    abstract void look(Object node) throws Exception;

    /** Tell whether an object is part of a tree, so that its fields are looked through. */
    abstract boolean isNode(Object part);

    /** Tell whether the query around a source has a condition; null for a node between the two. */
    abstract Boolean hasCondition(Object node) throws Exception;

    /** Note a table, and whether no condition stands in the query around. */
    void table(Object node, List<String> name) throws Exception {
        note("table", name);
        Boolean isFiltered = null;
        for (Object at = parents.get(node); at != null && isFiltered == null; at = parents.get(at)) {
            isFiltered = isNode(at) ? hasCondition(at) : null;
        }
        if (isFiltered != Boolean.TRUE) {
            note("bare", name);
        }
    }

    void note(String kind, List<String> name) {
        byte[] joined = String.join("\n", name).getBytes(UTF_8);
        seen.append(' ').append(kind).append('=').append(Base64.getEncoder().encodeToString(joined));
    }

    void note(String kind, String name) {
        note(kind, List.of(name));
    }

    /** Return all fields of a node, whatever their type: no part of a tree is missed. */
    Iterable<?> fields(Object node) throws Exception {
        List<Object> found = new ArrayList<>();
        for (Class<?> type = node.getClass(); type.getClassLoader() != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.getType().isPrimitive()) {
                    field.setAccessible(true);
                    found.add(field.get(node));
                }
            }
        }
        return found;
    }

    Iterable<?> parts(Object part) throws Exception {
        if (part instanceof Optional<?> optional) {
            return optional.stream().toList();
        }
        if (part instanceof Map<?, ?> map) {
            return map.values();
        }
        if (part instanceof Iterable<?> several) {
            return several;
        }
        return isNode(part) ? fields(part) : List.of();
    }

    private void walk(Object tree) throws Exception {
        Set<Object> known = Collections.newSetFromMap(new IdentityHashMap<>());
        parents.clear();
        ArrayDeque<Object> waiting = new ArrayDeque<>(List.of(tree));
        while (!waiting.isEmpty()) {
            Object part = waiting.pop();
            if (!known.add(part)) {
                continue;
            }
            if (isNode(part)) {
                look(part);
            }
            for (Object inner : parts(part)) {
                if (inner != null) {
                    parents.putIfAbsent(inner, part);
                    waiting.push(inner);
                }
            }
        }
    }

    private String answer(String text) throws Exception {
        seen.setLength(0);
        Object tree;
        try {
            tree = parse(text);
        } catch (Exception | StackOverflowError refused) {
            return "-";
        }
        note("statement", tree.getClass().getSimpleName());
        walk(tree);
        return seen.toString();
    }

    void run() throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(new String(Base64.getDecoder().decode(line), UTF_8)));
            answers.flush();
        }
    }
}
