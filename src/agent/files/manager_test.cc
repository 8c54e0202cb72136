// Digests of files that a work list asks for.
#include "agent/files/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/check.h"
#include "codec/digest.h"
#include "net/http.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::files {
namespace files_manager_test {

using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  Files() {
    CHECK(fs_.make_directories("/models", 0700).ok());
    write("bytes");
  }
  void write(const std::string& bytes) {
    CHECK(os::write_file_atomically(fs_, "/models/a b.onnx", bytes).ok());
  }
  void apply(const std::string& path, const std::string& version = "1") {
    api::EdgeFile file;
    file.key = "models.edgeai.io/default/digits";
    file.uid = "u1";
    file.path = path;
    file.version = version;
    core::WorkList list;
    list.id = {"n", ++generation_};
    list.spec.files = {file};
    manager_.apply(list);
  }
  /// Steps until the report is complete.
  api::EdgeFileReport report() {
    for (;;) {
      manager_.tasks().front().step(Context::background());
      api::EdgeNodeStatus status;
      (void)manager_.put_report(status, {});
      if (status.files.at(0).state != api::EdgeFileReport::kReading) return status.files[0];
      std::this_thread::yield();
    }
  }

  std::int64_t generation_ = 0;
  os::testing::MemoryFileSystem fs_;
  std::unique_ptr<net::HttpClient> http_ =
      net::loopback(net::inline_handler([](const net::Request&) { return net::Response{}; }));
  Manager manager_{{.roots = {"/models"},
                    .poll = std::chrono::milliseconds(0),
                    .retry = std::chrono::milliseconds(20)},
                   fs_,
                   *http_};
};

TEST_F(Files, ReportHasTheDigestAndTheRequest) {
  apply("/models/a b.onnx");
  const api::EdgeFileReport read = report();
  EXPECT_EQ(read.state, api::EdgeFileReport::kRead);
  EXPECT_EQ(read.sha256, codec::Sha256::of("bytes").hex());
  EXPECT_EQ(read.bytes, 5);
  EXPECT_EQ(read.path, "/models/a b.onnx");
  EXPECT_EQ(manager_.tasks().front().due(), std::nullopt) << "the file is not read again";
}

TEST_F(Files, AnotherVersionReadsTheFileAgain) {
  apply("/models/a b.onnx");
  const std::string first = report().sha256;
  write("other");
  apply("/models/a b.onnx");
  EXPECT_EQ(report().sha256, first);
  apply("/models/a b.onnx", "2");
  EXPECT_EQ(report().sha256, codec::Sha256::of("other").hex());
  EXPECT_EQ(report().version, "2");
}

TEST_F(Files, PathOutsideOfTheRootsIsRefused) {
  apply("/etc/passwd");
  EXPECT_THAT(report().message, HasSubstr("only below directories this node allows"));
  apply("/models/../etc/passwd");
  EXPECT_EQ(report().state, api::EdgeFileReport::kFailed);
  apply("/models/none.onnx");
  EXPECT_THAT(report().message, HasSubstr("no such file"));
}

TEST_F(Files, FileThatAppearsLaterIsRead) {
  apply("/models/later.onnx");
  EXPECT_EQ(report().state, api::EdgeFileReport::kFailed);
  CHECK(os::write_file_atomically(fs_, "/models/later.onnx", "late").ok());
  for (;;)
    if (report().state == api::EdgeFileReport::kRead) break;
  EXPECT_EQ(report().sha256, codec::Sha256::of("late").hex());
}

}  // namespace files_manager_test
}  // namespace varda::agent::files
