// Golden cases of pure functions (codec/testing/golden_cases.h), and the objects in them.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/testing/golden_cases.h"
#include "meta/patch.h"

namespace varda::controllers::testing {

using codec::Json;
using codec::testing::GoldenCase;
using codec::testing::GoldenCases;

/// The cases in testdata/KIND, read once. For one thread.
inline GoldenCases& golden_cases(const std::string& kind) {
  static std::map<std::string, GoldenCases> all;
  return all.try_emplace(kind, std::filesystem::path(VARDA_TESTDATA) / kind).first->second;
}

/// The objects around the object named `main`.
inline std::vector<Json> world_of(const GoldenCase& test, std::string_view main) {
  std::vector<Json> out;
  for (const auto& [name, object] : test.given.as_object())
    if (name != main) out.push_back(object);
  return out;
}

template <typename T>
std::shared_ptr<const T> typed(const Json& object) {
  auto read = T::from_json(object);
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message());
  return read.ok() ? std::make_shared<const T>(std::move(read).value())
                   : std::make_shared<const T>();
}

}  // namespace varda::controllers::testing
