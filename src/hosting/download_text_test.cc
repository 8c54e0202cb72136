#include "hosting/download_text.h"

#include <gtest/gtest.h>

namespace varda::hosting {
namespace {

TEST(DownloadText, TextNamesProgressAndHostWithoutCredentials) {
  struct Case {
    std::int64_t done, total;
    std::string url, text;
  };
  constexpr std::int64_t kMiB = 1 << 20;
  for (const Case& one : std::initializer_list<Case>{
           {0, 0, "http://files.example/a", ""},
           {0, kMiB, "http://files.example/a", ""},
           {120 * kMiB, 1024 * kMiB, "http://files.example/a",
            "120 MiB of 1.0 GiB from files.example"},
           {120 * kMiB, 0, "https://files.example:8443/a", "120 MiB from files.example:8443"},
           {512 << 10, kMiB, "http://user:secret@files.example/a?token=secret",
            "512 KiB of 1.0 MiB from files.example"},
           {kMiB - 1, 16 * 1024 * kMiB, "http://[::1]:8080/a", "1.0 MiB of 16 GiB from [::1]:8080"},
           {9 * kMiB + kMiB / 2, 10 * kMiB - 1, "file:///srv/a", "9.5 MiB of 10 MiB"},
           {1, INT64_MAX, "no url", "0.0 KiB of 8388608 TiB"}}) {
    api::EdgeVersionReport report;
    report.bytes_done = one.done;
    report.bytes_total = one.total;
    EXPECT_EQ(download_text(report, one.url), one.text);
  }
}

TEST(ProgressText, TextIncludesPreviousFailure) {
  api::EdgeVersionReport report;
  EXPECT_EQ(progress_text(report, "http://files.example/a"), "");
  report.message = "Connection refused";
  EXPECT_EQ(progress_text(report, "http://files.example/a"),
            "; the previous attempt failed: Connection refused");
  report.bytes_done = 28 << 20;
  report.bytes_total = 57 << 20;
  EXPECT_EQ(
      progress_text(report, "http://files.example/a"),
      ": 28 MiB of 57 MiB from files.example; the previous attempt failed: Connection refused");
}

}  // namespace
}  // namespace varda::hosting
