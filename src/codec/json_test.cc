#include "codec/json.h"

#include <gtest/gtest.h>
#include <limits>

#include "codec/digest.h"
#include "codec/reported_paths.h"

namespace varda::codec {
namespace {

TEST(Json, WriterReproducesInputAndDistinguishesIntegers) {
  for (const char* text : {"null", "true", "0", "-7", "9223372036854775807", "1.5", "1.0", "1e+300",
                           "\"a\\\"\\\\\\n\\u0001\"", "[]", "{}",
                           R"({"b":1,"a":[1,2.0,{"c":null}]})", "\"\u00e4\u20ac\""}) {
    auto value = parse_json(text);
    ASSERT_TRUE(value.ok()) << text << value.error();
    EXPECT_EQ(write_json(*value), text);
  }
  EXPECT_NE(*parse_json("1"), *parse_json("1.0"));
}

TEST(Json, InvalidTextIsRefusedWithAnOffset) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "01", "1 2", "nul", "\"\xff\"",
                           "{\"a\" 1}", "'a'", "1e999", "[1}"}) {
    auto value = parse_json(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().code(), Code::kInvalid);
    EXPECT_EQ(value.error().message().rfind("offset ", 0), 0u) << value.error();
  }
}

TEST(Json, DepthIsLimited) {
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  EXPECT_FALSE(parse_json(deep).ok());
  EXPECT_TRUE(parse_json(deep, {.depth_max = 300, .duplicates = nullptr}).ok());
  EXPECT_TRUE(parse_json("[1, {\"a\": 2}]", {.nodes_max = 4}).ok());
  EXPECT_EQ(parse_json("[1, {\"a\": 2}]", {.nodes_max = 3}).error(),
            Error(Code::kInvalid, "more than 3 values"));
}

TEST(Json, TheLastDuplicateWinsAndIsReportedWithItsPath) {
  std::vector<std::string> duplicates;
  auto value = parse_json(R"({"spec":{"a":1,"b":[{"c":1,"c":2}],"a":3}})",
                          {.depth_max = 200, .duplicates = &duplicates});
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(write_json(*value), R"({"spec":{"a":3,"b":[{"c":2}]}})");
  EXPECT_EQ(duplicates, (std::vector<std::string>{"spec.b[0].c", "spec.a"}));
}

TEST(Json, ReportedDuplicatesAreLimitedInCountAndLength) {
  std::string text = "{\"" + std::string(100'000, 'k') + "\":{\"a\":1";
  for (int i = 0; i < 4000; ++i) text += ",\"a\":1";
  std::vector<std::string> duplicates;
  ASSERT_TRUE(parse_json(text + "}}", {.depth_max = 200, .duplicates = &duplicates}).ok());
  EXPECT_EQ(duplicates.size(), kReportedPathsMax);
  for (const std::string& path : duplicates) EXPECT_LE(path.size(), kReportedPathBytesMax);
}

TEST(Json, RepeatedNamesInALargeObjectAreMerged) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i)
    text += "\"k" + std::to_string(i % 500) + "\":" + std::to_string(i) + (i < 999 ? "," : "}");
  auto value = parse_json(text);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 500u);
  EXPECT_EQ((*value)["k7"].as_integer(), 507);
}

// A linear search per repeated name would take minutes.
TEST(Json, ManyRepeatedNamesParseInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"k" + std::to_string(i % 100'000) + "\":" + std::to_string(i) + ",";
  const auto value = parse_json(text + "\"end\":0}");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 100'001u);
  EXPECT_EQ(value->as_object()[99'999].second.as_integer(), 199'999);
}

TEST(Json, NumbersKeepTypeAndValueInARoundTrip) {
  // Without fraction or exponent, these read as integers, or fail beyond 64 bits.
  for (const Json& value : {Json(std::uint64_t{18446744073709551615u}), Json(1e15),
                            Json(-1234567890123456.0), Json(0x1p63), Json(9.007199254740993e15),
                            Json(1e22), Json(-0.0), Json(std::numeric_limits<double>::max())}) {
    const auto again = parse_json(write_json(value));
    ASSERT_TRUE(again.ok()) << write_json(value) << again.error();
    EXPECT_EQ(again->type(), value.type()) << write_json(value);
    EXPECT_EQ(*again, value) << write_json(value);
  }
}

TEST(Json, InvalidUtf8IsWrittenAsReplacementCharacters) {
  EXPECT_EQ(write_json(Json("a\xE5\xE5z")), "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\"");
  EXPECT_EQ(write_json(Json("\xC3\xA4\xC3")), "\"\xC3\xA4\xEF\xBF\xBD\"");
  EXPECT_EQ(write_json(Json("\xED\xA0\x80\x80")),
            "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(write_json(Json::object({{"\xFF\n", 1}})), "{\"\xEF\xBF\xBD\\n\":1}");
  EXPECT_EQ(write_json(Json("\xF0\x9F\x98\x80")), "\"\xF0\x9F\x98\x80\"");
}

TEST(Json, EqualityIgnoresTheOrderOfMembers) {
  EXPECT_EQ(*parse_json(R"({"a":1,"b":{"c":2,"d":3}})"),
            *parse_json(R"({"b":{"d":3,"c":2},"a":1})"));
  EXPECT_NE(*parse_json(R"({"a":1})"), *parse_json(R"({"a":1,"b":null})"));
  EXPECT_NE(*parse_json("[1,2]"), *parse_json("[2,1]"));
}

TEST(Json, SortedEqualValuesHaveEqualText) {
  const Json one = *parse_json(R"({"b":[{"y":1,"x":2}],"a":null,"B":{}})");
  const Json other = *parse_json(R"({"B":{},"a":null,"b":[{"x":2,"y":1}]})");
  EXPECT_EQ(write_json(sorted(one)), R"({"B":{},"a":null,"b":[{"x":2,"y":1}]})");
  EXPECT_EQ(write_json(sorted(one)), write_json(sorted(other)));
  EXPECT_EQ(sorted(Json(3)), Json(3));
}

TEST(Json, TypesHaveJsonSchemaNames) {
  std::string names;
  for (const Json& value :
       {Json(), Json(true), Json(1), Json(1.5), Json("x"), Json::array(), Json::object()})
    names += std::string(type_name(value.type())) + " ";
  EXPECT_EQ(names, "null boolean integer number string array object ");
}

TEST(Json, PathsReachIntoObjectsAndArrays) {
  auto value = *parse_json(R"({"spec":{"containers":[{"name":"a"},{"name":"b"}]}})");
  EXPECT_EQ(value.at("spec/containers/1/name").as_string(), "b");
  EXPECT_TRUE(value.at("spec/containers/2/name").is_null());
  EXPECT_TRUE(value.at("spec/containers/x").is_null());
  value.make("metadata/labels/app") = "web";
  EXPECT_EQ(value["metadata"]["labels"]["app"].as_string(), "web");
}

TEST(Json, NonFiniteNumbersBecomeNull) {
  EXPECT_EQ(write_json(Json(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(Json(std::uint64_t{1} << 63).type(), Json::Type::kNumber);
  EXPECT_EQ(Json(2.0).as_integer(), 2);
  EXPECT_EQ(Json(2.5).as_integer(-1), -1);
}

TEST(Digest, Sha256MatchesKnownTextsWholeAndInPieces) {
  EXPECT_EQ(Sha256::of("").hex(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256::of("abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256Stream stream;
  stream.update("a");
  stream.update("bc");
  EXPECT_EQ(stream.finish(), Sha256::of("abc"));
  EXPECT_EQ(Sha256::parse(Sha256::of("abc").hex()).value(), Sha256::of("abc"));
  EXPECT_FALSE(
      Sha256::parse("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD").ok());
  EXPECT_FALSE(Sha256::parse("abc").ok());
}

TEST(Base64, ValidTextRoundTripsAndInvalidTextIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : cases) {
    EXPECT_EQ(base64(plain), encoded);
    EXPECT_EQ(unbase64(encoded).value(), plain);
  }
  for (const char* bad : {"Z", "Zg=", "Z===", "Zg==Zg==", "Z*==", "=Zg="})
    EXPECT_FALSE(unbase64(bad).ok()) << bad;
}

TEST(Json, LargeObjectsCompareEqualInAnyOrder) {
  for (const int size : {3, 16, 17, 300}) {
    Json up = Json::object();
    Json down = Json::object();
    for (int i = 0; i < size; ++i) up.set("k" + std::to_string(i), i);
    for (int i = size - 1; i >= 0; --i) down.set("k" + std::to_string(i), i);
    EXPECT_EQ(up, down);
    down.set("k1", -1);
    EXPECT_NE(up, down);
    down.set("k1", 1);
    down.erase("k0");
    down.set("other", 0);
    EXPECT_NE(up, down);
  }
}

}  // namespace
}  // namespace varda::codec
