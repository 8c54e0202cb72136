#include "access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::serve::access_test {
namespace {

using ::testing::HasSubstr;

class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return now_; }
  WallTime wall() const override { return {}; }
  void advance(Duration by) { now_ += by; }

 private:
  SteadyTime now_{};
};

class AccessTest : public ::testing::Test {
 protected:
  void write(std::string_view text) {
    ASSERT_TRUE(os::write_file_atomically(fs_, "/tokens", text).ok());
  }
  int status_of(const net::Handler& handler, std::string target, std::string authorization = "",
                std::string name = "") {
    net::Request request;
    request.target = std::move(target);
    request.peer.certificate_name = std::move(name);
    if (!authorization.empty()) request.headers.add("Authorization", std::move(authorization));
    int status = 0;
    handler(std::move(request),
            net::Responder([&](net::Response response) { status = response.status; }));
    return status;
  }
  const net::Handler ok_ = [](net::Request, net::Responder respond) {
    respond({200, {}, "", nullptr});
  };
  os::testing::MemoryFileSystem fs_;
  const ReadFile read_ = read_from(fs_);
  HandClock clock_;
};

TEST_F(AccessTest, EachLineOfTheTokenFileIsAToken) {
  write("first\r\n\nsecond");
  const auto tokens = TokenFile::open("/tokens", read_, clock_).value();
  const net::Handler handler = guarded(ok_, {.tokens = tokens.get()});
  EXPECT_EQ(status_of(handler, "/v2", "Bearer first"), 200);
  EXPECT_EQ(status_of(handler, "/v2", "bearer second"), 200);
  for (const char* wrong : {"", "Bearer ", "Bearer third", "Bearer firs", "Basic first", "first"})
    EXPECT_EQ(status_of(handler, "/v2", wrong), 401) << wrong;
}

TEST_F(AccessTest, TokenFileMayBeALinkAsInAMountedSecret) {
  for (const char* name : {"first", "second"}) {
    ASSERT_TRUE(fs_.make_directories(std::string("/") + name, 0755).ok());
    ASSERT_TRUE(os::write_file_atomically(fs_, std::string("/") + name + "/token", name).ok());
  }
  ASSERT_TRUE(fs_.symlink("first", "/..data").ok());
  ASSERT_TRUE(fs_.symlink("..data/token", "/token").ok());
  const auto tokens = TokenFile::open("/token", read_, clock_).value();
  EXPECT_TRUE(tokens->knows("first"));
  ASSERT_TRUE(fs_.symlink("second", "/..next").ok());
  ASSERT_TRUE(fs_.rename("/..next", "/..data").ok());
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(tokens->knows("second"));
  ASSERT_TRUE(fs_.symlink("round", "/round").ok());
  EXPECT_EQ(TokenFile::open("/round", read_, clock_).error().code(), Code::kInvalid);
}

TEST_F(AccessTest, HealthAndStatePathsNeedNoCredentials) {
  write("secret");
  const auto tokens = TokenFile::open("/tokens", read_, clock_).value();
  const net::Handler handler =
      guarded(ok_, {.tokens = tokens.get(), .needs_client_certificate = true});
  for (const char* path : {"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready",
                           "/v2/models/m/ready", "/v2/models/m/joint"})
    EXPECT_EQ(status_of(handler, path), 200) << path;
  for (const char* path : {"/metrics", "/v2", "/v2/models/m", "/healthz/"})
    EXPECT_EQ(status_of(handler, path), 401) << path;
}

TEST_F(AccessTest, ClientCertificateIsRequiredIfConfigured) {
  const net::Handler handler = guarded(ok_, {.needs_client_certificate = true});
  EXPECT_EQ(status_of(handler, "/v2"), 401);
  EXPECT_EQ(status_of(handler, "/v2", "", "camera-7"), 200);
}

TEST_F(AccessTest, ChangedTokenFileTakesEffectAfterOneSecond) {
  write("old");
  const auto tokens = TokenFile::open("/tokens", read_, clock_).value();
  write("new");
  EXPECT_TRUE(tokens->knows("old"));
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(tokens->knows("new"));
  EXPECT_FALSE(tokens->knows("old"));
}

TEST_F(AccessTest, MissingOrEmptyTokenFileKeepsTheLastTokens) {
  write("secret");
  const auto tokens = TokenFile::open("/tokens", read_, clock_).value();
  write("\n");
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(tokens->knows("secret"));
  ASSERT_TRUE(fs_.remove("/tokens").ok());
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(tokens->knows("secret"));
  EXPECT_FALSE(tokens->knows(""));
}

TEST_F(AccessTest, TokenFileWithoutATokenIsRefused) {
  EXPECT_FALSE(TokenFile::open("/tokens", read_, clock_).ok());
  write("\n  \n");
  EXPECT_THAT(TokenFile::open("/tokens", read_, clock_).error().message(),
              HasSubstr("has no token"));
}

}  // namespace
}  // namespace varda::serve::access_test
