// Golden files: expected test results under version control.
//
// UPDATE_GOLDEN=1 rewrites a golden that differs, and the test fails, so that a person reads the
// difference. The next run without the variable compares. Equal goldens stay unchanged.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

namespace varda {

inline bool updating_goldens() { return std::getenv("UPDATE_GOLDEN") != nullptr; }

/// Rewrites the file and fails the test. For goldens that also hold the input of the case; others
/// use check_golden().
inline void rewrite_golden(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  ADD_FAILURE() << path
                << " is rewritten: read the difference, then run the test without UPDATE_GOLDEN";
}

/// Fails unless the file holds exactly `text`.
inline void check_golden(const std::filesystem::path& path, const std::string& text) {
  std::ifstream in(path, std::ios::binary);
  const bool found = in.is_open();
  const std::string expected((std::istreambuf_iterator<char>(in)), {});
  if (found && expected == text) return;
  if (updating_goldens()) return rewrite_golden(path, text);
  EXPECT_TRUE(found) << path << " is missing: UPDATE_GOLDEN=1 writes it";
  EXPECT_EQ(text, expected) << path << " differs: UPDATE_GOLDEN=1 rewrites it";
}

}  // namespace varda
