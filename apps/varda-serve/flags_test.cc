#include "flags.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace varda::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outcome {
  Parsed parsed;
  std::string out, err;
};
Outcome parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "varda-serve");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.parsed = parse_flags(static_cast<int>(argv.size()), argv.data());
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}
Outcome parse_with_models(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "--model-repository=/models");
  return parse(std::move(arguments));
}

TEST(ServeFlags, DefaultsApplyWithoutFlags) {
  const Outcome outcome = parse_with_models({});
  ASSERT_TRUE(outcome.parsed.flags) << outcome.err;
  const Flags& flags = *outcome.parsed.flags;
  EXPECT_EQ(flags.model_repository, "/models");
  EXPECT_EQ(flags.http, "127.0.0.1:8080");
  EXPECT_GE(flags.io_threads, 1u);
  EXPECT_LE(flags.io_threads, 4u);
  EXPECT_GE(flags.defaults.instances, 1u);
  EXPECT_TRUE(flags.defaults.memory_arena);
  EXPECT_EQ(flags.defaults.queue_timeout, std::chrono::milliseconds(0));
  EXPECT_TRUE(flags.try_loads);
  // Kubernetes kills a container 30 s after SIGTERM.
  EXPECT_LT(flags.drain_delay_seconds + flags.drain_timeout_seconds, 30);
}

TEST(ServeFlags, EachFlagSetsItsOption) {
  const Outcome outcome =
      parse_with_models({"--http=0.0.0.0:80",      "--admin=:81",        "--io-threads=7",
                         "--connections-max=1",    "--body-bytes-max=2", "--header-bytes-max=3",
                         "--idle-timeout=0.1",     "--drain-delay=0",    "--drain-timeout=3600",
                         "--engine-path=/a",       "--engine-path=/b",   "--try-loads=false",
                         "--load-timeout=0",       "--instances=256",    "--threads=0",
                         "--memory-arena=false",   "--queue-max=0",      "--queue-bytes-max=5",
                         "--queue-timeout-ms=250", "--warmup-runs=0",    "--log-format=json",
                         "--log-level=debug"});
  ASSERT_TRUE(outcome.parsed.flags) << outcome.err;
  const Flags& flags = *outcome.parsed.flags;
  EXPECT_EQ(flags.http, "0.0.0.0:80");
  EXPECT_EQ(flags.admin, ":81");
  EXPECT_EQ(flags.io_threads, 7u);
  EXPECT_EQ(flags.connections_max, 1u);
  EXPECT_EQ(flags.body_bytes_max, 2u);
  EXPECT_EQ(flags.header_bytes_max, 3u);
  EXPECT_EQ(flags.idle_timeout_seconds, 0.1);
  EXPECT_EQ(flags.drain_delay_seconds, 0);
  EXPECT_EQ(flags.drain_timeout_seconds, 3600);
  EXPECT_THAT(flags.engine_path, ElementsAre("/a", "/b"));
  EXPECT_FALSE(flags.try_loads);
  EXPECT_EQ(flags.load_timeout_seconds, 0);
  EXPECT_EQ(flags.defaults.instances, 256u);
  EXPECT_EQ(flags.defaults.threads, 0u);
  EXPECT_FALSE(flags.defaults.memory_arena);
  EXPECT_EQ(flags.defaults.queue_max, 0u);
  EXPECT_EQ(flags.defaults.queue_bytes_max, 5u);
  EXPECT_EQ(flags.defaults.queue_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(flags.defaults.warmup_runs, 0u);
  EXPECT_EQ(flags.log_format, "json");
  EXPECT_EQ(flags.log_level, "debug");
}

TEST(ServeFlags, InvalidValuesAreRefusedWithTheFlagName) {
  for (const char* argument :
       {"--io-threads=257",      "--io-threads=-1",        "--connections-max=0",
        "--connections-max=-1",  "--connections-max=010",  "--connections-max=99999999999999999999",
        "--body-bytes-max=-5",   "--header-bytes-max=1e3", "--idle-timeout=0",
        "--idle-timeout=nan",    "--idle-timeout=inf",     "--idle-timeout=5s",
        "--drain-delay=-1",      "--drain-delay=nan",      "--drain-timeout=3601",
        "--drain-timeout=nan",   "--load-timeout=nan",     "--load-timeout=-0.1",
        "--instances=0",         "--instances=257",        "--queue-max=-1",
        "--queue-bytes-max=-1",  "--queue-timeout-ms=-1",  "--queue-timeout-ms=86400001",
        "--warmup-runs=1001",    "--log-format=xml",       "--log-level=loud",
        "--memory-arena=perhaps"}) {
    const std::string name = std::string(argument).substr(0, std::string(argument).find('='));
    const Outcome outcome = parse_with_models({argument});
    EXPECT_FALSE(outcome.parsed.flags) << argument;
    EXPECT_EQ(outcome.parsed.exit_code, 2) << argument;
    EXPECT_THAT(outcome.err, HasSubstr(name)) << argument;
  }
}

TEST(ServeFlags, UnknownFlagIsReportedBeforeAMissingFlag) {
  EXPECT_THAT(parse({"--bogus"}).err, HasSubstr("there is no flag --bogus"));
  EXPECT_THAT(parse({}).err, HasSubstr("--model-repository"));
  EXPECT_EQ(parse({}).parsed.exit_code, 2);
}

TEST(ServeFlags, GrpcFlagIsRefused) {
  const Outcome outcome = parse_with_models({"--grpc=:9000"});
  EXPECT_FALSE(outcome.parsed.flags);
  EXPECT_EQ(outcome.parsed.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--grpc"));
}

TEST(ServeFlags, HelpAndVersionSucceed) {
  for (const char* argument : {"--help", "--version"}) {
    const Outcome outcome = parse({argument});
    EXPECT_FALSE(outcome.parsed.flags);
    EXPECT_EQ(outcome.parsed.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("varda-serve"));
  }
  EXPECT_THAT(parse({"--help"}).out, ::testing::Not(HasSubstr("--probe-load")));  // hidden
}

TEST(ServeFlags, ConfigFileSetsFlagsAndTheCommandLineWins) {
  const std::string file = ::testing::TempDir() + "varda_serve_flags_test";
  std::ofstream(file) << "model-repository=/from/file\nhttp=file:1\nidle-timeout=nan\n";
  EXPECT_FALSE(parse({"--config", file}).parsed.flags);
  std::ofstream(file) << "model-repository=/from/file\nhttp=file:1\n";
  const Outcome outcome = parse({"--config", file, "--http=given:2"});
  ASSERT_TRUE(outcome.parsed.flags) << outcome.err;
  EXPECT_EQ(outcome.parsed.flags->model_repository, "/from/file");
  EXPECT_EQ(outcome.parsed.flags->http, "given:2");
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace varda::serve
