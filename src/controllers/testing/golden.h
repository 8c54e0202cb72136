// Golden cases as files, for tests of pure functions.
//
// A document may be {include: FILE, change: PATCH}: a file of ROOT/common with a merge patch.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/golden.h"
#include "codec/yaml.h"
#include "meta/patch.h"

namespace varda::controllers::testing {

using codec::Json;
using Path = std::filesystem::path;

inline std::string read_text(const Path& path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

/// The documents of an optional file.
inline std::vector<Json> read_documents(const Path& root, const Path& path) {
  if (!std::filesystem::exists(path)) return {};
  auto parsed = codec::parse_yaml_stream(read_text(path));
  EXPECT_TRUE(parsed.ok()) << path << ": " << (parsed.ok() ? "" : parsed.error().message());
  std::vector<Json> out;
  if (!parsed.ok()) return out;
  for (Json& document : parsed.value()) {
    const std::string file = std::as_const(document)["include"].as_string();
    if (file.empty()) {
      out.push_back(std::move(document));
      continue;
    }
    auto base = codec::parse_yaml(read_text(root / "common" / file));
    EXPECT_TRUE(base.ok()) << path << " includes " << file;
    if (!base.ok()) continue;
    const Json& said = std::as_const(document)["change"];
    const Json change = said.is_null() ? Json::object() : said;
    out.push_back(meta::apply_merge_patch(std::move(base).value(), change));
  }
  return out;
}

template <typename T>
std::shared_ptr<const T> typed(const Json& object) {
  auto read = T::from_json(object);
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message());
  return read.ok() ? std::make_shared<const T>(std::move(read).value())
                   : std::make_shared<const T>();
}

/// The golden as YAML (base/testing/golden.h).
inline void check_golden(const Path& path, const Json& actual) {
  varda::check_golden(path, codec::write_yaml(actual));
}

/// Names of the cases: the folders of the root except common.
inline std::vector<std::string> golden_cases(const Path& root) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_directory() && entry.path().filename() != "common")
      names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace varda::controllers::testing
