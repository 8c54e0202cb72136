// Power cuts and faults at every call of a job's disk.
#include <gtest/gtest.h>
#include <map>

#include "aggregator/testing/sample_job.h"
#include "base/log.h"
#include "os/testing/crash_campaign.h"
#include "os/testing/crashing_file_system.h"

namespace varda::aggregator {
namespace {
namespace crash_test {

using federated::RoundMachine;
using federated::Verdict;
using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;

/// Acknowledged updates: client and task -> digest.
using Acknowledged = std::map<std::pair<std::string, std::string>, codec::Sha256>;

/// Sends bytes in two pieces, or continues an upload of an earlier life.
Result<Coordinator::Submitted> upload(Coordinator& job, const std::string& client,
                                      const std::string& task, const std::string& bytes) {
  const codec::Sha256 digest = codec::Sha256::of(bytes);
  std::uint64_t first = job.store().offset(client, digest).value_or(0);
  while (true) {
    const std::uint64_t middle = bytes.size() / 2;
    const std::uint64_t last = first < middle ? middle : bytes.size();
    TRY(const auto piece,
        job.store().begin(client, digest,
                          {.first = first, .length = last - first, .total = bytes.size()}));
    TRY_VOID(piece->write(std::string_view(bytes).substr(first, last - first)));
    TRY(const auto file, piece->finish());
    if (file) return job.submit(client, task, digest, {*file});
    first = last;
  }
}

/// Runs the job until its end. Each step is repeated after an error of the disk. Returns the model
/// or a problem.
Result<std::string> drive(const SampleJob& sample, os::FileSystem& fs, Acknowledged& acknowledged,
                          std::uint64_t& promises) {
  std::unique_ptr<Coordinator> job;
  Status last;
  for (int tries = 0; tries < 200; ++tries) {
    if (!job) {
      auto opened = sample.open(fs);
      if (!opened.ok()) {
        last = opened.error();
        continue;
      }
      job = std::move(*opened);
      // Nothing acknowledged is lost, and nothing is wanted again.
      for (const auto& [key, digest] : acknowledged) {
        const Verdict verdict = job->judge(key.first, key.second, digest);
        if (verdict != Verdict::kDuplicate && verdict != Verdict::kLate)
          return Error(Code::kCorrupt, "update of " + key.first + " for " + key.second + " is " +
                                           std::string(to_string(verdict)));
      }
    }
    for (const std::string& client : sample.clients()) TRY_VOID(job->seen(client));
    const auto due = job->work(Context::background());
    if (!due.ok()) {
      last = due.error();
      continue;
    }
    const Snapshot now = job->snapshot();
    if (now.phase == RoundMachine::Phase::kFinished)
      return now.failed ? Result<std::string>(Error(Code::kInternal, now.message)) : now.model;
    for (const std::string& client : sample.clients()) {
      const auto task = job->task_for(client);
      if (!task || task->kind != federated::Task::Kind::kTrain) continue;
      const std::string bytes = sample.update(client, *task);
      const auto submitted = upload(*job, client, task->id, bytes);
      if (!submitted.ok()) {
        last = submitted.error();
        continue;
      }
      if (submitted->verdict != Verdict::kWanted && submitted->verdict != Verdict::kDuplicate)
        return Error(Code::kCorrupt, "update of " + client + " for " + task->id + " is " +
                                         std::string(to_string(submitted->verdict)) + " " +
                                         submitted->message);
      acknowledged.emplace(std::pair(client, task->id), codec::Sha256::of(bytes));
      ++promises;
    }
  }
  return last.ok() ? Error(Code::kTimeout, "the job does not end") : last.error();
}

std::string model_without_crash(const SampleJob& sample) {
  CrashingFileSystem fs;
  Acknowledged acknowledged;
  std::uint64_t promises = 0;
  return drive(sample, fs, acknowledged, promises).value();
}

class AggregatorCrash : public ::testing::Test {
 protected:
  AggregatorCrash() { log::configure(log::Format::kText, log::Level::kError); }
  ~AggregatorCrash() override { log::configure(log::Format::kText, log::Level::kInfo); }
};

TEST_F(AggregatorCrash, PowerCutAtAnyCallEndsWithTheSameModel) {
  const SampleJob sample("FedAvgM", 3, 3);
  const std::string expected = model_without_crash(sample);
  CrashCampaign campaign("aggregator_test --gtest_filter=AggregatorCrash.*", 600);
  while (campaign.next_seed()) {
    CrashingFileSystem fs;
    Acknowledged acknowledged;
    std::uint64_t promises = 0;
    bool inside = false;
    fs.on_call([&](std::string_view, const os::Path&) {
      if (inside || campaign.over()) return Status();
      inside = true;
      campaign.point(fs, promises, [&](CrashingFileSystem& left, Rng&) -> std::string {
        Acknowledged after = acknowledged;
        std::uint64_t more = 0;
        const auto model = drive(sample, left, after, more);
        if (!model.ok()) return model.error().message();
        return *model == expected ? "" : "another model: " + *model;
      });
      inside = false;
      return Status();
    });
    const auto model = drive(sample, fs, acknowledged, promises);
    fs.on_call(nullptr);
    ASSERT_TRUE(model.ok()) << model.error();
    EXPECT_EQ(*model, expected);
  }
  EXPECT_EQ(campaign.failure(), "");
}

TEST_F(AggregatorCrash, FaultAtAnyCallEndsWithTheSameModel) {
  const SampleJob sample("FedAdam", 2, 2);
  const std::string expected = model_without_crash(sample);
  for (std::uint64_t call = 0;; ++call) {
    CrashingFileSystem fs(call + 1);
    fs.set_fault(CrashingFileSystem::Fault{.call = call});
    Acknowledged acknowledged;
    std::uint64_t promises = 0;
    const auto model = drive(sample, fs, acknowledged, promises);
    ASSERT_TRUE(model.ok()) << "fault at call " << call << " (" << fs.hit()
                            << "): " << model.error();
    ASSERT_EQ(*model, expected) << "fault at call " << call << " (" << fs.hit() << ")";
    if (fs.hit().empty()) break;  // the job has no more calls
    ASSERT_LT(call, 2000u);
  }
}

}  // namespace crash_test
}  // namespace
}  // namespace varda::aggregator
