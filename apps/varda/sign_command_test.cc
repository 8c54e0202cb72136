// `varda sign`: its output passes the operator's check.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/text.h"
#include "codec/digest.h"
#include "command.h"
#include "hosting/model_keys.h"
#include "os/file_system.h"
#include "os/testing/test_directory.h"

namespace varda::app {
namespace sign_command_test {

using os::testing::TestDirectory;
using ::testing::HasSubstr;

struct Outcome {
  std::string output, error;
};

Outcome run(std::vector<std::string> arguments) {
  CLI::App parser("", "varda");
  Globals globals;
  Run chosen;
  std::function<Status()> before;
  add_sign_command(Program{parser, globals, chosen, before});
  arguments.insert(arguments.begin(), "sign");
  std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 takes
  try {
    parser.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return {"", error.what()};
  }
  ::testing::internal::CaptureStdout();
  const Status status = chosen(Context::background());
  std::string output = ::testing::internal::GetCapturedStdout();
  return {std::string(trim(output)), status.ok() ? "" : status.error().message()};
}

TEST(SignCommand, OutputPassesTheCheckOfTheOperator) {
  const TestDirectory root;
  const std::string key = (root / "release.pem").string();
  const Outcome made = run({"--generate", key});
  ASSERT_EQ(made.error, "");
  EXPECT_EQ(os::real_file_system().stat(key).value()->mode, 0600u);
  const auto keys = hosting::ModelKeys::parse(made.output).value();

  const std::string archive = root.write("digits-4.tar.gz", "an archive").string();
  const std::string digest = codec::Sha256::of("an archive").hex();
  const std::vector<std::string> version{"--key", key, "--name", "digits", "--version", "4"};
  for (const std::vector<std::string>& what :
       {std::vector<std::string>{archive}, std::vector<std::string>{"--sha256", digest}}) {
    std::vector<std::string> arguments = version;
    arguments.insert(arguments.end(), what.begin(), what.end());
    const Outcome signed_version = run(arguments);
    ASSERT_EQ(signed_version.error, "");
    EXPECT_FALSE(keys->refusal(
        {.model = "digits", .version = "4", .sha256 = digest, .signature = signed_version.output}));
  }
}

TEST(SignCommand, ExistingKeyIsNotReplaced) {
  const TestDirectory root;
  const auto key = root.write("release.pem", "the key");
  EXPECT_NE(run({"--generate", key.string()}).error, "");
  EXPECT_EQ(os::read_file(os::real_file_system(), key).value(), "the key");
}

TEST(SignCommand, ErrorNamesTheMissingFlagOrTheWrongFile) {
  const TestDirectory root;
  const std::string key = root.write("release.pem", "the key").string();
  EXPECT_THAT(run({}).error, HasSubstr("needs --generate, or --key, --name and --version"));
  EXPECT_THAT(run({"--key", key, "--name", "digits", "--version", "4"}).error,
              HasSubstr("needs --sha256 or an archive"));
  EXPECT_THAT(run({"--key", key, "--name", "digits", "--version", "4", "--sha256", "x"}).error,
              HasSubstr(key));
  EXPECT_THAT(run({"--generate", key, "--key", key}).error, HasSubstr("excludes"));
}

}  // namespace sign_command_test
}  // namespace varda::app
