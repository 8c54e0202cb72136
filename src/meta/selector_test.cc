#include "meta/selector.h"

#include <gtest/gtest.h>

namespace varda::meta {
namespace {

using codec::parse_json;
using Labels = std::map<std::string, std::string>;

const Labels kLabels[] = {
    {{"app", "web"}, {"tier", "a"}, {"weight", "7"}},
    {{"app", "web"}, {"tier", "b"}},
    {{"app", "db"}, {"old", ""}},
    {},
};

TEST(LabelSelector, SelectorsMatchTheExpectedLabels) {
  // The string has one digit for each matching entry of kLabels.
  const std::pair<const char*, const char*> cases[] = {
      {"", "0123"},
      {"app=web", "01"},
      {"app==web", "01"},
      {"app!=web", "23"},
      {"app", "012"},
      {"!app", "3"},
      {"app in (web,db)", "012"},
      {"app notin (web)", "23"},
      {"app=web,tier=a", "0"},
      {" app = web , tier in ( b , c ) ", "1"},
      {"weight>3", "0"},
      {"weight>7", ""},
      {"weight<8", "0"},
      {"tier>1", ""},
      {"old=", "2"},
      {"old", "2"},
      {"old in ()", ""},
      {"app in (web,),tier", "01"},
      {"in in (in)", ""},
      {"!old,app", "01"},
      {"app=", ""},
      {"app in (,web)", "01"},
  };
  for (const auto& [text, matching] : cases) {
    const auto selector = LabelSelector::parse(text);
    if (std::string_view(text) == "old in ()") {
      EXPECT_EQ(selector.error().message(),
                "unable to parse requirement: values: Invalid value: []: for 'in', 'notin' "
                "operators, values set can't be empty");
      continue;
    }
    ASSERT_TRUE(selector.ok()) << text << ": " << selector.error().message();
    std::string found;
    for (int i = 0; i < 4; ++i) {
      if (selector->matches(kLabels[i])) found += static_cast<char>('0' + i);
      Json json = Json::object();
      for (const auto& [key, value] : kLabels[i]) json.set(key, value);
      EXPECT_EQ(selector->matches(kLabels[i]), selector->matches_labels(json)) << text;
    }
    EXPECT_EQ(found, matching) << text;
    // The printed selector selects the same.
    const auto again = LabelSelector::parse(selector->str());
    ASSERT_TRUE(again.ok()) << selector->str();
    EXPECT_EQ(again->str(), selector->str());
    for (const Labels& labels : kLabels)
      EXPECT_EQ(again->matches(labels), selector->matches(labels)) << text;
  }
}

TEST(LabelSelector, ErrorsEqualThoseOfKubernetes) {
  const std::pair<const char*, const char*> cases[] = {
      {"a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"},
      {"!!x", "unable to parse requirement: found '!', expected: identifier"},
      {"bad key=1",
       "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt"},
      {"i>x",
       "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, "
       "the value must be an integer"},
      {"a in b", "unable to parse requirement: found 'b' expected: '('"},
      {"a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"},
      {"a=b c", "found 'c', expected: ',' or 'end of string'"},
      {"a,", "found '', expected: identifier after ','"},
      {"=a", "found '=', expected: !, identifier, or 'end of string'"},
      {"a=b=c", "found '=', expected: ',' or 'end of string'"},
      {"a=(", "unable to parse requirement: found '(', expected: identifier"},
      {"!a=b", "found '=', expected: ',' or 'end of string'"},
  };
  for (const auto& [text, message] : cases) {
    const auto selector = LabelSelector::parse(text);
    ASSERT_FALSE(selector.ok()) << text;
    EXPECT_EQ(selector.error().code(), Code::kInvalid);
    EXPECT_EQ(selector.error().message(), message) << text;
  }
  EXPECT_TRUE(LabelSelector::parse("a=b@c").error().message().starts_with(
      "unable to parse requirement: values[0][a]: Invalid value: \"b@c\": a valid label must be"));
  EXPECT_TRUE(LabelSelector::parse("a@=b").error().message().starts_with(
      "unable to parse requirement: <nil>: Invalid value: \"a@\": name part must consist of"));
}

TEST(LabelSelector, ObjectSelectorsEqualTextSelectors) {
  const auto selector =
      LabelSelector::from_json(parse_json(R"({"matchLabels": {"app": "web"}, "matchExpressions": [
      {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"},
      {"key": "weight", "operator": "Gt", "values": ["3"]}]})")
                                   .value());
  ASSERT_TRUE(selector.ok()) << selector.error().message();
  EXPECT_TRUE(selector->matches(kLabels[0]));
  EXPECT_FALSE(selector->matches(kLabels[1]));
  EXPECT_EQ(selector->str(), "app=web,tier in (a,b),!old,weight>3");
  const auto set = LabelSelector::from_json(parse_json(R"({"matchExpressions": [
      {"key": "a", "operator": "In", "values": ["x", "", "b", "x"]}, {"key": "b", "operator": "NotIn", "values": ["y", "y"]}]})")
                                                .value());
  ASSERT_TRUE(set.ok()) << set.error().message();
  EXPECT_EQ(set->str(), "a in (,b,x),b!=y") << "values are a set";
  EXPECT_EQ(LabelSelector::parse(set->str())->str(), set->str());
  EXPECT_TRUE(LabelSelector::from_json(Json::object())->matches({}));
  EXPECT_TRUE(LabelSelector::equals({{"app", "db"}}).matches(kLabels[2]));

  const std::pair<const char*, const char*> bad[] = {
      {"[]", "selector must be an object"},
      {"null", "selector must be an object"},
      {R"({"matchLabels": {"a": 1}})", "matchLabels.a: must be a string"},
      {R"({"matchExpressions": [{"key": "a", "operator": "Like"}]})",
       "matchExpressions[0].operator: \"Like\" is not a valid label selector operator"},
      {R"({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]})",
       "matchExpressions[0]: values: Invalid value: values set must be empty for exists and does "
       "not exist"},
  };
  for (const auto& [text, message] : bad) {
    EXPECT_EQ(LabelSelector::from_json(parse_json(text).value()).error().message(), message);
  }
}

TEST(FieldSelector, TermsMatchAndPrint) {
  const auto read = [](std::string_view field) -> std::string {
    return field == "metadata.name" ? "a,b" : field == "spec.x" ? "" : "v";
  };
  const auto selector = FieldSelector::parse(R"(metadata.name=a\,b,spec.x==,spec.y!=w,)");
  ASSERT_TRUE(selector.ok());
  EXPECT_TRUE(selector->matches(read));
  EXPECT_EQ(selector->exact("metadata.name"), "a,b");
  EXPECT_EQ(selector->exact("spec.x"), "");
  EXPECT_EQ(selector->exact("spec.y"), std::nullopt);
  EXPECT_EQ(selector->str(), R"(metadata.name=a\,b,spec.x=,spec.y!=w)");
  EXPECT_FALSE(FieldSelector::parse("spec.y!=v")->matches(read));
  EXPECT_TRUE(FieldSelector::parse("")->empty());
}

TEST(FieldSelector, ErrorsEqualThoseOfKubernetes) {
  EXPECT_EQ(FieldSelector::parse("abc").error().message(),
            "invalid selector: 'abc'; can't understand 'abc'");
  EXPECT_EQ(FieldSelector::parse("x=1,abc").error().message(),
            "invalid selector: 'x=1,abc'; can't understand 'abc'");
  EXPECT_EQ(FieldSelector::parse("a=b=c,,").error().message(),
            "invalid field selector: unescaped character in value: 61");
  EXPECT_EQ(FieldSelector::parse(R"(a=b\c)").error().message(),
            R"(invalid field selector: invalid escape sequence: \c)");
}

}  // namespace
}  // namespace varda::meta
