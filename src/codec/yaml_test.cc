#include "codec/yaml.h"

#include <gtest/gtest.h>

namespace varda::codec {
namespace {

TEST(Yaml, ScalarsResolveAsKubernetesReadsThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"a", "\"a\""},         {"'1'", "\"1\""},
      {"\"yes\"", "\"yes\""}, {"yes", "true"},
      {"off", "false"},       {"~", "null"},
      {"12", "12"},           {"-3", "-3"},
      {"0x1F", "31"},         {"0o17", "15"},
      {"017", "15"},          {"1.5", "1.5"},
      {"1e3", "1000.0"},      {"1.2.3", "\"1.2.3\""},
      {"v1", "\"v1\""},       {"!!str 5", "\"5\""},
      {"-", "[null]"},        {"100m", "\"100m\""},
      {"08", "8.0"},          {"2001-01-01", "\"2001-01-01\""},
  };
  for (const auto& [yaml, json] : cases) {
    auto value = parse_yaml(std::string("k: ") + (std::string(yaml) == "-" ? "\n- " : yaml));
    ASSERT_TRUE(value.ok()) << yaml << value.error();
    EXPECT_EQ(write_json((*value)["k"]), json) << yaml;
  }
}

TEST(Yaml, EmptyDocumentsOfAStreamAreSkipped) {
  auto documents = parse_yaml_stream("---\na: 1\n---\n# nothing\n---\nb: [1, {c: d}]\n");
  ASSERT_TRUE(documents.ok());
  ASSERT_EQ(documents->size(), 2u);
  EXPECT_EQ(write_json((*documents)[1]), R"({"b":[1,{"c":"d"}]})");
}

TEST(Yaml, AnchorsAndMergeKeysExpandWithinLimits) {
  auto value = parse_yaml("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n");
  ASSERT_TRUE(value.ok()) << value.error();
  EXPECT_EQ(write_json((*value)["use"]), R"({"x":1,"y":3})");
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'j'; ++c) {
    const std::string p(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [*" + p + ",*" + p + ",*" + p + ",*" + p + ",*" + p +
            ",*" + p + ",*" + p + ",*" + p + "]\n";
  }
  EXPECT_FALSE(parse_yaml(bomb, {.nodes_max = 10'000}).ok());
}

TEST(Yaml, AliasesOfLongTextsAreLimited) {
  const std::string aliases = [] {
    std::string out;
    for (int i = 0; i < 4000; ++i) out += "- *a\n";
    return out;
  }();
  // 114 KB that expand to 400 MB, in each syntax.
  const std::string text(20'000, 'x');
  for (const std::string& first : {"- &a " + text + "\n", "- &a {k: " + text + "}\n",
                                   "- &a {k: {l: " + text + "}}\n", "- &a [[" + text + "]]\n"}) {
    const auto value = parse_yaml(first + aliases);
    ASSERT_FALSE(value.ok());
    EXPECT_NE(value.error().message().find("anchors and aliases"), std::string::npos)
        << value.error();
  }
  EXPECT_TRUE(parse_yaml("- &a " + text + "\n- *a\n- *a\n").ok());
}

TEST(Yaml, NestedAnchorsAreLimited) {
  std::string text;
  for (int i = 0; i < 190; ++i) text += "[&a" + std::to_string(i) + " ";
  text += std::string(200'000, 'x') + std::string(190, ']');
  EXPECT_FALSE(parse_yaml(text).ok());
}

TEST(Yaml, TextThatIsNotUtf8IsRefused) {
  for (const char* text : {"a: \xE5\xE5", "\xFF: b", "- \"\xC0\x80\"", "k: \"\\xE5\"\n\xF8: x"}) {
    const auto value = parse_yaml(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_NE(value.error().message().find("UTF-8"), std::string::npos) << value.error();
  }
}

// A linear search per name would take minutes.
TEST(Yaml, LargeMapParsesInLinearTimeAndRefusesDuplicates) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  const auto value = parse_yaml(text);
  ASSERT_TRUE(value.ok()) << value.error();
  EXPECT_EQ(value->size(), 20'000u);
  EXPECT_FALSE(parse_yaml(text + "k7: 2\n").ok());
}

TEST(Yaml, ErrorsNameLineAndColumn) {
  for (const char* text : {"a: [1", "a: 1\na: 2\n", "a: b: c", "? [x]\n: 1", "a: !foo x", "\t- x",
                           "{\"a\":[1,2.5,nuu00e4\"],\"b\":{\"c: \":-1e5}},b", "a: &x [*x]"}) {
    auto value = parse_yaml(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().message().rfind("line ", 0), 0u) << value.error();
  }
}

TEST(Yaml, WrittenValuesReadBackTheSame) {
  for (
      const char* text :
      {R"({"a":"yes","b":"1","c":"","d":"null","e":"x: y","f":"- x","g":"#x","h":"2001-01-01","i":"12:30","j":"-x","k":" s","l":"*a"})",
       R"({"list":[1,[2,[3]],{"a":{"b":[]},"c":{}},"x",[{"y":1,"z":2}]],"n":null,"t":true,"f":1.5,"w":2.0})",
       R"({"text":"line one\nline two\n","no end":"a\nb","many":"a\n\nb\n\n","tab":"a\tb","bell":"\u0007","indent":"  a\nb"})",
       R"([{"name":"a","env":[{"name":"X","value":"1"}]},"b"])", R"("just text")", "[]", "{}", "3",
       R"("--- - x")", R"("...x")"}) {
    const Json value = *parse_json(text);
    const std::string yaml = write_yaml(value);
    auto back = parse_yaml(yaml);
    ASSERT_TRUE(back.ok()) << yaml << back.error();
    EXPECT_EQ(write_json(*back), write_json(value)) << yaml;
  }
  EXPECT_EQ(write_yaml(*parse_json(R"({"a":[{"b":1,"c":[2]}],"d":"x\ny\n"})")),
            "a:\n- b: 1\n  c:\n  - 2\nd: |\n  x\n  y\n");
}

TEST(Yaml, QuotedMergeKeyIsAnOrdinaryName) {
  for (const char* text :
       {R"({"<<":1.5})", R"({"<<":{"a":1},"b":"<<"})", R"({"a":{"<<":[{"x":1}]}})"}) {
    const Json value = *parse_json(text);
    const auto back = parse_yaml(write_yaml(value));
    ASSERT_TRUE(back.ok()) << text << back.error();
    EXPECT_EQ(write_json(*back), text);
  }
  EXPECT_EQ(write_json(*parse_yaml("a: &m {x: 1}\n<<: *m\n\"<<\": 2\n")),
            R"({"a":{"x":1},"x":1,"<<":2})");
  EXPECT_FALSE(parse_yaml("'<<': 1\n\"<<\": 2\n").ok()) << "twice";
}

TEST(Yaml, AmbiguousCharactersAreEscaped) {
  for (const auto& [code, escape] : {std::pair("\x7f", "\\u007f"), std::pair("\u0080", "\\u0080"),
                                     std::pair("\u0085", "\\u0085"), std::pair("\u009f", "\\u009f"),
                                     std::pair("\u2028", "\\u2028"), std::pair("\u2029", "\\u2029"),
                                     std::pair("\ufeff", "\\ufeff"), std::pair("\ufffe", "\\ufffe"),
                                     std::pair("\uffff", "\\uffff")}) {
    for (const char* before : {"", "a", "a\nb", "\u00e4\u20ac"}) {
      const std::string text = std::string(before) + code + "z";
      EXPECT_NE(write_yaml(text).find(escape), std::string::npos) << escape;
      for (const Json& value : {Json(text), Json::object({{text, text}}), Json::array({text})}) {
        const auto back = parse_yaml(write_yaml(value));
        ASSERT_TRUE(back.ok()) << escape << back.error();
        EXPECT_EQ(*back, value) << escape;
      }
    }
  }
  EXPECT_EQ(write_yaml("\u00a0\u00e4\u20ac\U0001f600"), "\u00a0\u00e4\u20ac\U0001f600\n")
      << "letters are as they are";
}

// YAML 1.2.2, 8.2.2: a key without "?" has at most 1024 characters.
TEST(Yaml, LongKeysReadBackTheSame) {
  for (const std::size_t size : {1022, 1023, 1024, 1025}) {
    for (const std::string& key :
         {std::string(size, 'k'), std::string(size, '"'), std::string(size, '-'),
          std::string(size, '\x12'), "? " + std::string(size, ':')}) {
      for (const char* text :
           {"1", R"("a")", "null", R"("a\nb\n")", "[]", "{}", "[1,[2,{\"a\":3}]]",
            R"([{"a":1,"b":[2]},3])", R"({"a":{"b":1},"c":[1,2]})", R"({"a":[{"b":1}],"c":2})"}) {
        const Json value = *parse_json(text);
        for (const Json& whole :
             {Json::object({{key, value}}), Json::object({{"a", 1}, {key, value}, {"b", 2}}),
              Json::array(
                  {Json::object({{key, value}, {"b", Json::object({{key + "x", value}})}})})}) {
          const std::string yaml = write_yaml(whole);
          const auto back = parse_yaml(yaml);
          ASSERT_TRUE(back.ok()) << size << " " << text << back.error();
          EXPECT_EQ(write_json(*back), write_json(whole)) << size << " " << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace varda::codec
