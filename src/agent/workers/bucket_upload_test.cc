// Accepted files on their way to a bucket: parts, kills, faults, wrong credentials.
#include "agent/workers/bucket_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/workers/artifact_sender.h"
#include "artifact/testing/manual_clock.h"
#include "base/check.h"
#include "os/testing/memory_file_system.h"
#include "registry/testing/memory_s3.h"

namespace varda::agent::workers {
namespace bucket_upload_test {

using artifact::testing::ManualClock;
using codec::Sha256;
using registry::testing::MemoryS3;

constexpr std::size_t kPart = 1000;

const ArtifactOwner kToBucket{"default/train", "u1", 8 << 20,
                              api::EdgeBucket{"s3://models/line-7", "default/key", {}}};

class Secrets final : public artifact::CredentialReader {
 public:
  artifact::Outcome<artifact::Credentials> read(const Context&, const std::string& name) override {
    names.push_back(name);
    if (missing)
      return artifact::Failure{artifact::Reason::kCredentialsMissing,
                               Error(Code::kNotFound, "there is no Secret " + name)};
    artifact::Credentials out;
    out.access_key_id = "id";
    out.secret_access_key = "the-secret";
    out.endpoint = "http://s3.example";
    return out;
  }
  bool missing = false;
  std::vector<std::string> names;
};

/// One process of the agent, on the disk of `Buckets`.
struct Process {
  Process(os::FileSystem& fs, core::StateStore& state, const Clock& clock, Secrets& secrets,
          net::HttpClient& http)
      : store({.root = "/data/uploads", .boot = "1", .clock = &clock}, fs, state),
        sender({.clock = &clock,
                .buckets = {.http = &http,
                            .credentials = &secrets,
                            .part_bytes = kPart,
                            .first_pause = Duration(0)}},
               store, fs, api) {
    CHECK(store.load().ok());
  }
  void step() { sender.tasks().front().step(Context::background()); }

  int registry_requests = 0;
  kube::Client api{net::loopback(net::inline_handler([this](const net::Request&) {
                     ++registry_requests;
                     return net::Response{.status = 500};
                   })),
                   {}};
  ArtifactStore store;
  ArtifactSender sender;
};

class Buckets : public ::testing::Test {
 protected:
  Buckets() {
    CHECK(fs_.make_directories("/data", 0700).ok());
    restart();
    process_->store.set_owners({kToBucket});
  }
  void restart() { process_ = std::make_unique<Process>(fs_, *state_, clock_, secrets_, *http_); }
  void accept(const std::string& name, const std::string& bytes) {
    const auto upload = process_->store.begin(
        kToBucket, {.name = name, .length = bytes.size(), .total = bytes.size()});
    CHECK(upload.ok() && (*upload)->write(bytes).ok() && (*upload)->finish().ok());
  }
  Artifact artifact(const std::string& name) { return *process_->store.find(kToBucket, name); }
  static std::string key_of(const std::string& name, const std::string& bytes) {
    return "line-7/" + Sha256::of(bytes).hex() + "/" + name;
  }

  ManualClock clock_;
  os::testing::MemoryFileSystem fs_;
  std::unique_ptr<core::StateStore> state_ = core::StateStore::in_memory();
  MemoryS3 s3_;
  std::unique_ptr<net::HttpClient> http_ = net::loopback(s3_.handler());
  Secrets secrets_;
  std::unique_ptr<Process> process_;
  const std::string small_ = "weights", large_ = std::string(1000, 'a') + std::string(1000, 'b') +
                                                 std::string(1000, 'c') + "d";
};

TEST_F(Buckets, SmallFileIsOneObjectAndNothingGoesToTheRegistry) {
  accept("model.onnx", small_);
  process_->step();
  EXPECT_EQ(s3_.objects(),
            (std::map<std::string, std::string>{{key_of("model.onnx", small_), small_}}));
  EXPECT_EQ(artifact("model.onnx").state, Artifact::kUploaded);
  EXPECT_EQ(process_->registry_requests, 0);
  EXPECT_EQ(secrets_.names, std::vector<std::string>{"default/key"});
  EXPECT_EQ(fs_.list("/data/uploads").value(), std::vector<std::string>());
}

TEST_F(Buckets, KilledAgentContinuesBehindTheLastPart) {
  accept("model", large_);
  s3_.fail_at(4, MemoryS3::Fault::kBefore, /*lasting=*/true);  // one to create, two parts
  process_->step();
  EXPECT_EQ(artifact("model").state, Artifact::kWaiting);
  EXPECT_EQ(artifact("model").sent, 2000u);
  restart();
  s3_.heal();
  EXPECT_EQ(process_->store.due(), std::nullopt) << "the place of the file is not known yet";
  process_->store.set_owners({kToBucket});
  const std::uint64_t before = s3_.requests();
  process_->step();
  EXPECT_EQ(artifact("model").state, Artifact::kUploaded);
  EXPECT_EQ(s3_.requests() - before, 4u) << "a list, two parts, the end";
  EXPECT_EQ(s3_.objects(), (std::map<std::string, std::string>{{key_of("model", large_), large_}}));
  EXPECT_EQ(s3_.uploads(), 0u);
}

TEST_F(Buckets, UploadThatTheBucketForgotStartsOver) {
  accept("model", large_);
  s3_.fail_at(4, MemoryS3::Fault::kBefore, /*lasting=*/true);
  process_->step();
  s3_.heal();
  s3_.abort_uploads();
  clock_.advance(std::chrono::minutes(2));
  process_->step();
  EXPECT_EQ(artifact("model").state, Artifact::kUploaded);
  EXPECT_EQ(s3_.objects().at(key_of("model", large_)), large_);
}

TEST_F(Buckets, EveryLostRequestOrAnswerLeadsToTheSameObject) {
  for (const auto fault : {MemoryS3::Fault::kBefore, MemoryS3::Fault::kAfter}) {
    for (std::uint64_t number = 1; number <= 6; ++number) {
      const std::string name =
          "m" + std::to_string(number) + (fault == MemoryS3::Fault::kBefore ? "-before" : "-after");
      accept(name, large_);
      s3_.fail_at(s3_.requests() + number, fault, /*lasting=*/true);
      process_->step();
      restart();
      s3_.heal();
      process_->store.set_owners({kToBucket});
      process_->step();
      EXPECT_EQ(artifact(name).state, Artifact::kUploaded) << name << artifact(name).reason;
      EXPECT_EQ(s3_.objects().at(key_of(name, large_)), large_);
    }
  }
}

TEST_F(Buckets, MissingSecretIsTheReasonAndHealsLater) {
  accept("model", small_);
  secrets_.missing = true;
  process_->step();
  EXPECT_EQ(artifact("model").state, Artifact::kWaiting);
  EXPECT_EQ(artifact("model").reason, "there is no Secret default/key");
  secrets_.missing = false;
  clock_.advance(std::chrono::minutes(2));
  process_->step();
  EXPECT_EQ(artifact("model").state, Artifact::kUploaded);
}

TEST_F(Buckets, DamagedFileBecomesNoObject) {
  for (const std::string& bytes : {small_, large_}) {
    const std::string name = "model-" + std::to_string(bytes.size());
    accept(name, bytes);
    {
      const auto file =
          fs_.open("/data/uploads/" + artifact(name).file, os::Open::kCreate, 0600).value();
      ASSERT_TRUE(file->write("y").ok());
    }
    process_->step();
    EXPECT_EQ(artifact(name).state, Artifact::kFailed);
  }
  EXPECT_TRUE(s3_.objects().empty());
  EXPECT_EQ(s3_.uploads(), 0u);
}

TEST_F(Buckets, RecordAndReportContainNoSecret) {
  accept("model", large_);
  s3_.fail_at(3, MemoryS3::Fault::kBefore, /*lasting=*/true);
  process_->step();
  std::string all = codec::write_json(process_->store.report("default/train", "u1"));
  const auto records = state_->entries("");
  ASSERT_TRUE(records.ok());
  for (const auto& [key, json] : *records) all += codec::write_json(json);
  EXPECT_THAT(all, ::testing::HasSubstr("Waiting"));
  EXPECT_THAT(all, ::testing::Not(::testing::HasSubstr("the-secret")));
}

}  // namespace bucket_upload_test
}  // namespace varda::agent::workers
