#include "federated/settings.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "codec/yaml.h"

namespace varda::federated {
namespace {
namespace settings_test {

using codec::Json;

Json cases() {
  std::ifstream file(VARDA_TESTDATA "/settings.yaml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return codec::parse_yaml(text).value();
}

TEST(FederatedSettings, AreReadOrRefusedWithAReason) {
  const Json all = cases();
  ASSERT_GT(all.size(), 40u);
  const Json defaults = to_json(Settings());
  for (const Json& one : all.as_array()) {
    const std::string text = codec::write_json(one["settings"]);
    const auto settings = parse_settings(one["settings"]);
    if (one.contains("error")) {
      ASSERT_FALSE(settings.ok()) << text;
      EXPECT_EQ(settings.error().message(), one["error"].as_string()) << text;
      continue;
    }
    ASSERT_TRUE(settings.ok()) << text << ": " << settings.error();
    Json expected = defaults;
    for (const auto& [name, value] : one["is"].as_object()) expected.set(name, value);
    EXPECT_EQ(codec::write_json(codec::sorted(to_json(*settings))),
              codec::write_json(codec::sorted(expected)));
    const auto again = parse_settings(to_json(*settings));
    ASSERT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(to_json(*again), to_json(*settings)) << text;
  }
}

TEST(FederatedSettings, TaskCarriesTheTrainingSettings) {
  TrainSettings settings;
  settings.local_epochs = 3;
  settings.proximal = 0.5;
  settings.seed = 17;
  settings.trainer = Json::object({{"batchSize", 8}});
  const auto again = parse_train_settings(to_json(settings));
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(to_json(*again), to_json(settings));
  EXPECT_FALSE(parse_train_settings(Json::object({{"rounds", 3}})).ok());
}

}  // namespace settings_test
}  // namespace
}  // namespace varda::federated
