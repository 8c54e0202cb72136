#include "tiers/config.h"

#include <gtest/gtest.h>

namespace varda::tiers {
namespace {

using codec::Json;
using std::chrono::milliseconds;

constexpr std::string_view kFile =
    R"({"version": 1, "service": "default/digits", "deadlineMs": 1500, "inFlightMax": 8,
 "tiers": [
  {"name": "device", "policy": {"name": "CrossEntropy", "parameters": {"threshold_cross_entropy": "0.8"}}, "deadlineMs": 300},
  {"name": "edge", "url": "", "model": "digits-mid", "policy": {"name": "NeverCloud"}},
  {"name": "cloud", "url": "http://203.0.113.7:31080/", "model": "digits-big", "deadlineMs": 1000}]})";

TEST(Config, OperatorFileIsReadCompletely) {
  const auto config = parse_config(kFile);
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->service, "default/digits");
  EXPECT_EQ(config->deadline, milliseconds(1500));
  EXPECT_EQ(config->in_flight_max, 8U);
  ASSERT_EQ(config->tiers.size(), 3U);
  EXPECT_EQ(config->tiers[0].policy->parameters,
            (std::vector<PolicyParameter>{{"threshold_cross_entropy", "0.8"}}));
  EXPECT_EQ(config->tiers[0].deadline, milliseconds(300));
  EXPECT_EQ(config->tiers[1].url, "");
  EXPECT_EQ(config->tiers[2].url, "http://203.0.113.7:31080");
  EXPECT_EQ(config->tiers[2].model, "digits-big");
  EXPECT_FALSE(config->tiers[2].policy);
  EXPECT_EQ(parse_config(codec::write_json(to_json(*config))).value(), *config);
}

TEST(Config, MissingMembersHaveDefaults) {
  const auto config =
      parse_config(R"({"version": 1, "service": "a/b", "uid": "x", "deadlineMs": null,
      "tiers": [{"name": "edge"}, {"name": "cloud", "url": "", "model": "m", "later": {"more": true}}]})");
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->deadline, milliseconds(2000));
  EXPECT_EQ(config->in_flight_max, 64U);
  EXPECT_FALSE(config->tiers[0].policy);
  EXPECT_FALSE(config->tiers[0].deadline);
}

TEST(Config, ErrorNamesTheInvalidMember) {
  struct Case {
    const char* path;   // of the changed member
    const char* value;  // JSON; "" removes the member
    const char* message;
  };
  const Case cases[] = {
      {"version", "2", "version: must be 1"},
      {"version", "", "version: must be 1"},
      {"version", "1.0", "version: must be 1"},
      {"service", "", "service: is required"},
      {"service", "7", "service: must be a text"},
      {"deadlineMs", "0", "deadlineMs: must be a whole number from 1 to 3600000"},
      {"deadlineMs", "\"2s\"", "deadlineMs: must be a whole number from 1 to 3600000"},
      {"inFlightMax", "65537", "inFlightMax: must be a whole number from 1 to 65536"},
      {"tiers", "", "tiers: is required"},
      {"tiers", "[]", "tiers: must be a list of 2 to 8"},
      {"tiers", "[1, 2]", "tiers[0]: must be an object"},
      {"tiers/0/name", "", "tiers[0].name: is required"},
      {"tiers/0/name", "\"a,b\"",
       "tiers[0].name: must be 1 to 63 letters, digits, '-', '_' or '.'"},
      {"tiers/2/name", "\"edge\"", "tiers[2].name: 'edge' occurs twice"},
      {"tiers/0/url", "\"http://x\"",
       "tiers[0].url: must not be set: the first tier is the model in the file's own directory"},
      {"tiers/0/model", "\"m\"",
       "tiers[0].model: must not be set: the first tier is the model in the file's own directory"},
      {"tiers/1/url", "", "tiers[1].url: is required"},
      {"tiers/1/url", "\"ftp://x\"",
       "tiers[1].url: must be http://HOST:PORT or https://HOST:PORT, or empty while it is not "
       "known"},
      {"tiers/1/url", "\"http://\"",
       "tiers[1].url: must be http://HOST:PORT or https://HOST:PORT, or empty while it is not "
       "known"},
      {"tiers/1/url", "\"http://:80\"",
       "tiers[1].url: must be http://HOST:PORT or https://HOST:PORT, or empty while it is not "
       "known"},
      {"tiers/1/url", "\"http://a b\"",
       "tiers[1].url: must be http://HOST:PORT or https://HOST:PORT, or empty while it is not "
       "known"},
      {"tiers/1/model", "\"\"", "tiers[1].model: must not be empty"},
      {"tiers/1/deadlineMs", "-1", "tiers[1].deadlineMs: must be a whole number from 1 to 3600000"},
      {"tiers/2/policy", R"({"name": "NeverCloud"})",
       "tiers[2].policy: must not be set: no tier follows the last tier"},
      {"tiers/0/policy", "\"IBT\"", "tiers[0].policy: must be an object"},
      {"tiers/0/policy/name", "\"ibt\"",
       "tiers[0].policy.name: unknown policy 'ibt'; did you mean IBT?"},
      {"tiers/0/policy/parameters", "[]", "tiers[0].policy.parameters: must be an object of texts"},
      {"tiers/0/policy/parameters/threshold_cross_entropy", "0.8",
       "tiers[0].policy.parameters.threshold_cross_entropy: must be a text"},
      {"tiers/0/policy/parameters/threshold_cross_entropy", "\"2\"",
       "tiers[0].policy.parameters.threshold_cross_entropy: must be a number from 0 to 1, not '2'"},
      {"tiers/0/policy", R"({"name": "Labels"})",
       "tiers[0].policy.parameters: Labels needs the parameter labels"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.path) + " = " + c.value);
    Json json = codec::parse_json(kFile).value();
    const std::string path = c.path;
    const std::size_t slash = path.rfind('/');
    Json& parent = slash == std::string::npos
                       ? json
                       : const_cast<Json&>(std::as_const(json).at(path.substr(0, slash)));
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    if (*c.value == 0) {
      EXPECT_TRUE(parent.erase(name));
    } else {
      parent.set(name, codec::parse_json(c.value).value());
    }
    const auto config = parse_config(codec::write_json(json));
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().message(), c.message);
    EXPECT_EQ(config.error().code(), Code::kInvalid);
  }
}

TEST(Config, FileMustBeOneJsonObjectWithoutDuplicates) {
  EXPECT_FALSE(parse_config("").ok());
  EXPECT_FALSE(parse_config("[]").ok());
  EXPECT_EQ(parse_config(R"({"version": 1, "version": 1})").error().message(),
            "version: occurs twice");
  EXPECT_FALSE(parse_config(std::string(kConfigBytesMax + 1, ' ')).ok());
}

}  // namespace
}  // namespace varda::tiers
