#include "codec/json_reader.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace varda::codec {
namespace {

// Reads any value by walking it, to compare with the tree parser.
Json walk(JsonReader& reader) {
  switch (reader.peek()) {
    case JsonReader::Kind::kObject: {
      Json out = Json::object();
      std::string name;
      reader.begin_object();
      while (reader.next_member(name)) out.set(name, walk(reader));
      return out;
    }
    case JsonReader::Kind::kArray: {
      Json out = Json::array();
      reader.begin_array();
      while (reader.next_item()) out.push_back(walk(reader));
      return out;
    }
    case JsonReader::Kind::kString:
      return reader.string();
    case JsonReader::Kind::kBool:
      return reader.boolean();
    case JsonReader::Kind::kNumber: {
      const JsonReader::Number number = reader.number();
      if (!number.integral ||
          number.magnitude > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return number.value;
      const auto magnitude = static_cast<std::int64_t>(number.magnitude);
      return number.negative ? -magnitude : magnitude;
    }
    default:
      return reader.value();
  }
}

TEST(JsonReader, ReaderGivesTheSameValueAsParser) {
  for (const char* text : {
           R"({"a":[1,-2,3.5,[],{}],"b":{"c":null,"d":true,"e":false},"":"x\nü\ud83d\ude00"})",
           " [ 1 , 2 ] ",
           "[[[]]]",
           "0",
           "-0.0",
           "[1e2,1E-2,1.25e+3,0.1,123456789.987654321,9007199254740993,18446744073709551615,-"
           "9223372036854775807]",
           "[3.141592653589793238462643383279,2.2250738585072014e-308,1.7976931348623157e308,0."
           "000001]",
           R"(["","\"","\\","plain"])",
       }) {
    JsonReader reader(text);
    const Json walked = walk(reader);
    ASSERT_TRUE(reader.finish().ok()) << text << ": " << reader.status().error();
    EXPECT_EQ(write_json(walked), write_json(parse_json(text).value())) << text;
  }
}

TEST(JsonReader, NumbersAreReadToTheNearestDouble) {
  for (const char* text : {"0.1", "0.30000000000000004", "8.41", "123456789012345678", "1e22",
                           "1e23", "9007199254740992.5", "5e-324", "12345.6789e-3"}) {
    JsonReader reader(text);
    EXPECT_EQ(reader.number().value, std::strtod(text, nullptr)) << text;
  }
}

TEST(JsonReader, TinyNumbersBecomeZeroAndHugeNumbersAreErrors) {
  EXPECT_EQ(JsonReader("1e-999").number().value, 0.0);
  EXPECT_EQ(JsonReader("0." + std::string(500, '0') + "1").number().value, 0.0);
  for (const std::string& text :
       {std::string("1e400"), "1" + std::string(400, '0'), "1" + std::string(400, '0') + "e-5"}) {
    JsonReader reader(text);
    reader.number();
    EXPECT_EQ(reader.finish().error().message(), "offset 0: a number is too large");
  }
}

TEST(JsonReader, InvalidJsonFailsWithAnOffset) {
  for (const char* text :
       {"",           "[1",  "[1,]",   "[,1]",     "[1 2]",     "{\"a\" 1}", "{\"a\":}", "{a:1}",
        "{\"a\":1,}", "01",  "-",      "1.",       ".5",        "1e",        "+1",       "NaN",
        "[1]]",       "tru", "\"open", "\"\x01\"", "\"\\u12\"", "\"\xff\"",  "{\"a\":1]"}) {
    JsonReader reader(text);
    walk(reader);
    EXPECT_FALSE(reader.finish().ok()) << text;
    EXPECT_EQ(parse_json(text).ok(), false) << text;
  }
  JsonReader reader("[1, x]");
  walk(reader);
  EXPECT_EQ(reader.finish().error().message(), "offset 4: expected a value");
}

TEST(JsonReader, SkipReturnsTheTextOfTheNextValue) {
  JsonReader reader(R"({"a": [1,{"b":"]"}] , "c":12})");
  std::string name;
  reader.begin_object();
  ASSERT_TRUE(reader.next_member(name));
  EXPECT_EQ(reader.skip(), R"([1,{"b":"]"}])");
  ASSERT_TRUE(reader.next_member(name));
  EXPECT_EQ(name, "c");
  EXPECT_EQ(reader.skip(), "12");
  EXPECT_FALSE(reader.next_member(name));
  EXPECT_TRUE(reader.finish().ok());
}

TEST(JsonReader, FirstErrorPersistsAndEndsEveryLoop) {
  JsonReader reader("[1,2,3]");
  reader.begin_array();
  int items = 0;
  while (reader.next_item()) {
    reader.number();
    if (++items == 2) reader.fail("enough");
  }
  EXPECT_EQ(items, 2);
  EXPECT_EQ(reader.finish().error().message(), "offset 4: enough");
}

}  // namespace
}  // namespace varda::codec
