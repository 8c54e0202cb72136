// The client against an aggregator in memory: faults of every request, kills at every call of the
// disk, and power cuts.
#include "participant/client.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/digest.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "os/testing/crashing_file_system.h"
#include "os/testing/memory_file_system.h"
#include "participant/state.h"
#include "participant/testing/fake_aggregator.h"
#include "participant/transfer.h"

namespace varda::participant {
namespace {

namespace client_test {

using codec::Json;
using federated::Weights;
using os::testing::CrashingFileSystem;
using os::testing::MemoryFileSystem;
using tensor::DType;
using tensor::Tensor;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const os::Path kDirectory = "/client";

class Always final : public Machine {
 public:
  MachineState look() override { return state; }
  MachineState state;
};

class Events final : public Observer {
 public:
  std::vector<std::string> lines;
  std::function<void(const std::string&)> on_event;
  void add(std::string line) {
    lines.push_back(line);
    if (on_event) on_event(line);
  }
  void paused(const std::string& reason) override { add("paused " + reason); }
  void training(const Task& task) override { add("training " + task.id); }
  void accepted(const std::string& task, std::uint64_t) override { add("accepted " + task); }
  void dropped(const std::string& task, int status, const std::string& message) override {
    add("dropped " + task + " " + std::to_string(status) + " " + message);
  }
  void evaluated(const Task& task, const Evaluated&) override { add("evaluated " + task.id); }
  void skipped(const Task& task, const Error& error) override {
    add("skipped " + task.id + " " + error.message());
  }
  void retrying(const std::string& message) override { add("retrying " + message); }
};

/// The update is a function of model, seed and carry.
class TestWorker final : public Worker {
 public:
  std::map<std::string, int> trained;
  std::map<std::string, std::string> carries;  // given with the task
  std::function<Status(const Task&)> on_train;

  Result<TrainedUpdate> train(const Context& ctx, const Assignment& assignment) override {
    const Task& task = assignment.task;
    ++trained[task.id];
    carries[task.id] = assignment.carry;
    if (on_train) TRY_VOID(on_train(task));
    TRY_VOID(ctx.check());
    TrainedUpdate out{.samples = 10, .steps = 2, .carry = assignment.carry + "+" + task.id};
    const auto values = assignment.model.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      out.delta.push_back(0.01f * static_cast<float>((i * 7 + task.train.seed * 3) % 11) -
                          0.1f * values[i]);
    out.metrics = Json::object({{"loss", 0.5}});
    return out;
  }
  Result<Evaluated> evaluate(const Context&, const Assignment& assignment) override {
    return Evaluated{
        5, Json::object({{"loss", static_cast<double>(assignment.model.values().back())}})};
  }
};

std::string model_bytes(float first) {
  Tensor matrix = Tensor::allocate(DType::kFp32, {40, 10}).value();
  for (std::size_t i = 0; i < 400; ++i)
    matrix.mutable_values<float>()[i] = first + static_cast<float>(i % 5) * 0.25f;
  const std::vector<tensor::Named> tensors = {{"w", matrix},
                                              {"b", Tensor::allocate(DType::kFp32, {7}).value()}};
  return Weights::of(tensors).value().to_safetensors().value();
}

/// Two models, three kinds of updates, an evaluation.
void add_tasks(FakeAggregator& aggregator) {
  const Json first = aggregator.add_file(model_bytes(1)),
             second = aggregator.add_file(model_bytes(2));
  const auto task = [&](const std::string& id, const Json& model, const std::string& encoding) {
    return Json::object({{"id", id},
                         {"kind", "train"},
                         {"round", 1},
                         {"rounds", 3},
                         {"model", model},
                         {"train", Json::object({{"seed", static_cast<std::int64_t>(id[0])}})},
                         {"update", Json::object({{"encoding", encoding}, {"keep", 0.05}})}});
  };
  aggregator.add_task(task("1-train", first, "int8"));
  aggregator.add_task(
      Json::object({{"id", "1-evaluate"}, {"kind", "evaluate"}, {"model", second}}));
  aggregator.add_task(task("2-train", second, "topk"));
  aggregator.add_task(task("3-train", first, "fp16"));
}

Options quick() {
  return {.url = "http://aggregator:7363",
          .client = "node-1",
          .directory = kDirectory,
          .poll = std::chrono::seconds(0),
          .first_pause = std::chrono::milliseconds(1),
          .longest_pause = std::chrono::milliseconds(2),
          .conditions_every = std::chrono::milliseconds(1),
          .piece_bytes_max = 400};
}

struct Bench {
  FakeAggregator aggregator;
  TestWorker worker;
  Events events;
  Always machine;
  Options options = quick();
  std::function<Fault(std::size_t, const net::ClientRequest&)> fault =
      [](std::size_t, const net::ClientRequest&) { return Fault{}; };

  Result<Outcome> start(os::FileSystem& fs, const std::stop_token& stop = {}) {
    const auto http = faulty_client(aggregator, fault);
    return run(Context(stop), options, *http, fs, worker, machine, events);
  }
};

/// The updates of an undisturbed run, and its requests.
struct Reference {
  std::map<std::string, std::string> updates;
  std::map<std::string, Json> evaluations;
  std::size_t requests = 0;
  std::string carry;
};
const Reference& reference() {
  static const Reference out = [] {
    Bench bench;
    MemoryFileSystem fs;
    add_tasks(bench.aggregator);
    const auto outcome = bench.start(fs);
    EXPECT_TRUE(outcome.ok()) << outcome.error();
    auto state = State::open(fs, kDirectory, bench.options.url).value();
    return Reference{bench.aggregator.updates(), bench.aggregator.evaluations(),
                     bench.aggregator.requests().size(), state.carry()};
  }();
  return out;
}

std::string difference(Bench& bench, os::FileSystem& fs) {
  for (const auto& [task, bytes] : bench.aggregator.updates())
    if (!reference().updates.contains(task) || reference().updates.at(task) != bytes)
      return "another update of " + task;
  if (bench.aggregator.updates().size() != reference().updates.size()) return "fewer updates";
  if (bench.aggregator.evaluations() != reference().evaluations) return "other evaluations";
  for (const auto& [task, bytes] : bench.aggregator.updates())
    if (bench.aggregator.accepted_times(task) != 1) return task + " accepted twice";
  auto state = State::open(fs, kDirectory, bench.options.url);
  if (!state.ok()) return state.error().message();
  if (state->carry() != reference().carry) return "other carry";
  if (state->pending()) return "an update is pending";
  return "";
}

TEST(Client, AggregatorThatIsGoneForLongEndsTheClient) {
  Bench bench;
  MemoryFileSystem fs;
  bench.options.give_up_after = std::chrono::milliseconds(20);
  bench.fault = [](std::size_t, const net::ClientRequest&) {
    return Fault{Fault::Kind::kLostRequest};
  };
  const auto outcome = bench.start(fs);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable);
  EXPECT_NE(outcome.error().message().find("no usable answer of the aggregator"), std::string::npos)
      << outcome.error();
}

// --- the usual course

TEST(Client, TasksAreDoneUntilTheEnd) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  const auto outcome = bench.start(fs);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->accepted, 3u);
  EXPECT_EQ(outcome->evaluated, 1u);
  EXPECT_FALSE(outcome->failed);
  EXPECT_THAT(
      bench.events.lines,
      ElementsAre("training 1-train", "accepted 1-train", "evaluated 1-evaluate",
                  "training 2-train", "accepted 2-train", "training 3-train", "accepted 3-train"));
  EXPECT_EQ(bench.worker.carries.at("3-train"), "+1-train+2-train");
  EXPECT_EQ(bench.aggregator.evaluations().at("1-evaluate")["metrics"]["loss"].as_double(), 3);
  EXPECT_GT(outcome->received_bytes, 2000u);
}

TEST(Client, UpdatesCarryTheDifferenceInTheirEncoding) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  ASSERT_TRUE(bench.start(fs).ok());
  const Weights model = Weights::parse(model_bytes(1)).value();
  const auto update = federated::UpdateReader::of(bench.aggregator.updates().at("1-train"),
                                                  model.layout_pointer(), {.task = "1-train"});
  ASSERT_TRUE(update.ok()) << update.error().error;
  EXPECT_EQ((*update)->encoding(), federated::Encoding::kInt8);
  EXPECT_EQ((*update)->info().samples, 10u);
  EXPECT_EQ((*update)->info().metrics["loss"].as_double(), 0.5);
  std::vector<float> values(model.values().size());
  (*update)->read(0, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(
        values[i],
        0.01 * static_cast<double>((i * 7 + '1' * 3) % 11) - 0.1 * double{model.values()[i]},
        0.005);
}

TEST(Client, ErrorOfAnEncodingJoinsTheNextUpdate) {
  // The first update loses most values. The second has the delta 0, so only the residual travels.
  Bench bench;
  MemoryFileSystem fs;
  const Json model = bench.aggregator.add_file(model_bytes(0));
  for (const char* id : {"1-train", "2-train"})
    bench.aggregator.add_task(
        Json::object({{"id", id},
                      {"kind", "train"},
                      {"model", model},
                      {"update", Json::object({{"encoding", "topk"}, {"keep", 0.2}})}}));
  ASSERT_TRUE(bench.start(fs).ok());
  const Weights weights = Weights::parse(model_bytes(0)).value();
  const auto values_of = [&](const std::string& task) {
    std::vector<float> out(weights.values().size());
    const auto update =
        federated::UpdateReader::of(bench.aggregator.updates().at(task), weights.layout_pointer());
    (*update)->read(0, out);
    return out;
  };
  const std::vector<float> first = values_of("1-train"), second = values_of("2-train");
  // Both tasks have the same delta, so the residual decides what differs.
  int changed = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool sent_first = first[i] != 0, sent_second = second[i] != 0;
    changed += !sent_first && sent_second ? 1 : 0;
  }
  EXPECT_GT(changed, 40) << "values that were left out before travel now";
}

TEST(Client, EndOfAFailedJobIsReported) {
  Bench bench;
  MemoryFileSystem fs;
  bench.aggregator.add_task(
      Json::object({{"id", "end"}, {"kind", "end"}, {"failed", true}, {"message", "NoQuorum"}}));
  const auto outcome = bench.start(fs);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_TRUE(outcome->failed);
  EXPECT_EQ(outcome->message, "NoQuorum");
}

TEST(Client, BusyClientStaysPresentAndEndsWithTheJob) {
  Bench bench;
  MemoryFileSystem fs;
  const Json model = bench.aggregator.add_file(model_bytes(1));
  bench.aggregator.add_task(Json::object({{"id", "1-train"}, {"kind", "train"}, {"model", model}}));
  bench.options.presence_every = std::chrono::milliseconds(1);
  class Endless final : public Worker {
   public:
    Result<TrainedUpdate> train(const Context& ctx, const Assignment&) override {
      return ctx.sleep_for(std::chrono::hours(1)).error();
    }
    Result<Evaluated> evaluate(const Context&, const Assignment&) override { return Evaluated{}; }
  } endless;
  const auto http = faulty_client(bench.aggregator, bench.fault);
  const auto outcome =
      run(Context::background(), bench.options, *http, fs, endless, bench.machine, bench.events);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->accepted, 0u);
  EXPECT_THAT(bench.aggregator.requests(), Contains("GET /v1/task?wait=0&after=1-train"));
}

// --- secure aggregation; aggregator/secure_test.cc has whole rounds

Json secure_task(const std::string& id, const Json& model) {
  return Json::object(
      {{"id", id},
       {"kind", "train"},
       {"model", model},
       {"secure",
        Json::object(
            {{"sum", "job/" + id}, {"client", "node-1"}, {"length", 409}, {"limit", 8}})}});
}

TEST(Client, TaskWithoutSecureAggregationIsRefusedIfTheJobPromisesIt) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.options.secure.required = true;
  const auto outcome = bench.start(fs);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code(), Code::kInvalid);
  EXPECT_THAT(outcome.error().message(), HasSubstr("promises secure aggregation"));
  EXPECT_TRUE(bench.worker.trained.empty());
  EXPECT_TRUE(bench.aggregator.updates().empty());
}

TEST(Client, SecureRoundThatGoesOnWithoutTheClientIsNotTrained) {
  Bench bench;
  MemoryFileSystem fs;
  const Json model = bench.aggregator.add_file(model_bytes(1));
  bench.aggregator.add_task(secure_task("1-train", model));
  bench.aggregator.add_task(Json::object({{"id", "2-train"}, {"kind", "train"}, {"model", model}}));
  bench.aggregator.refuse("PUT /v1/secure/1-train/keys", 409, "the round of this task is over");
  const auto outcome = bench.start(fs);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(bench.worker.trained.count("1-train"), 0u);
  EXPECT_EQ(outcome->accepted, 1u);
}

TEST(Client, BrokenMessageOfASecureSumSkipsTheTask) {
  Bench bench;
  MemoryFileSystem fs;
  const Json model = bench.aggregator.add_file(model_bytes(1));
  bench.aggregator.add_task(secure_task("1-train", model));
  bench.aggregator.add_task(Json::object({{"id", "2-train"}, {"kind", "train"}, {"model", model}}));
  // The answer has no neighbours.
  bench.aggregator.refuse("PUT /v1/secure/1-train/keys", 200, "{}");
  bench.aggregator.refuse("GET /v1/secure/1-train/keys", 200, "{}");
  const auto outcome = bench.start(fs);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_THAT(bench.events.lines, Contains(StartsWith("skipped 1-train ")));
  EXPECT_EQ(outcome->accepted, 1u);
}

TEST(Client, NameTravelsWithEachRequest) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  std::size_t without = 0;
  bench.fault = [&](std::size_t, const net::ClientRequest& request) {
    without += request.headers.find("Varda-Client") == "node-1" ? 0 : 1;
    return Fault{};
  };
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(without, 0u);
}

// --- refusals

TEST(Client, LateUpdateIsDroppedAndTheNextTaskFollows) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.aggregator.refuse("PUT /v1/updates/1-train", 409, "round 1 is over");
  const auto outcome = bench.start(fs);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->dropped, 1u);
  EXPECT_EQ(outcome->accepted, 2u);
  EXPECT_THAT(bench.events.lines,
              Contains("dropped 1-train 409 the aggregator answered 409: round 1 is over"));
  EXPECT_EQ(bench.worker.trained.at("1-train"), 1);
  EXPECT_EQ(bench.worker.carries.at("2-train"), "") << "a dropped update has no consequences";
}

TEST(Client, RefusedUpdatesAreReportedAndNotRepeated) {
  for (const int status : {403, 413, 422}) {
    Bench bench;
    MemoryFileSystem fs;
    add_tasks(bench.aggregator);
    bench.aggregator.refuse("PUT /v1/updates/2-train", status, "norm");
    const auto outcome = bench.start(fs);
    ASSERT_TRUE(outcome.ok()) << outcome.error();
    EXPECT_EQ(outcome->dropped, 1u) << status;
    EXPECT_EQ(bench.worker.trained.at("2-train"), 1);
    EXPECT_EQ(bench.worker.carries.at("3-train"), "+1-train");
  }
}

TEST(Client, ClientThatTheJobDoesNotKnowWaits) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.aggregator.refuse("GET /v1/task", 403, "node-1 is no participant");
  bench.events.on_event = [&](const std::string& line) {
    if (line.starts_with("retrying")) bench.aggregator.stop_refusing();
  };
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(bench.events.lines.front(),
            "retrying the aggregator answered 403: node-1 is no participant");
  EXPECT_EQ(bench.aggregator.updates().size(), 3u);
}

TEST(Client, OtherBytesOfAModelAreNeverUsed) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.aggregator.corrupt(2);
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_THAT(bench.events.lines.front(), StartsWith("retrying the file has the SHA-256 "));
  EXPECT_EQ(difference(bench, fs), "");
}

TEST(Client, TaskThatDoesNotFitIsSkipped) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.worker.on_train = [](const Task& task) -> Status {
    if (task.id == "2-train") return Error(Code::kInvalid, "other classes");
    return {};
  };
  const auto outcome = bench.start(fs);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  EXPECT_EQ(outcome->accepted, 2u);
  EXPECT_EQ(bench.worker.trained.at("2-train"), 1);
}

TEST(Client, ThreeFailuresInARowEndTheClient) {
  Bench bench;
  MemoryFileSystem fs;
  const Json model = bench.aggregator.add_file(model_bytes(1));
  for (const char* id : {"1", "2", "3", "4", "5"})
    bench.aggregator.add_task(Json::object({{"id", id}, {"kind", "train"}, {"model", model}}));
  bench.worker.on_train = [](const Task& task) -> Status {
    if (task.id == "1") return {};
    return Error(Code::kInvalid, "classes");
  };
  const auto outcome = bench.start(fs);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message(), "classes");
  EXPECT_EQ(bench.worker.trained.size(), 4u);
}

TEST(Client, FailureOfTheFirstTaskEndsTheClient) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.worker.on_train = [](const Task&) { return Status(Error(Code::kInvalid, "no data")); };
  const auto outcome = bench.start(fs);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message(), "no data");
  EXPECT_EQ(bench.worker.trained.size(), 1u);
}

TEST(Client, HostileTasksEndNoClient) {
  for (const char* id : {"../../x", "1-train"}) {
    Bench bench;
    MemoryFileSystem fs;
    bench.aggregator.add_task(Json::object(
        {{"id", id},
         {"kind", "train"},
         {"model", Json::object({{"sha256", std::string(64, 'a')}, {"bytes", 1'000'000}})}}));
    std::stop_source stop;
    int retries = 0;
    bench.events.on_event = [&](const std::string&) {
      if (++retries == 1) stop.request_stop();
    };
    const auto outcome = bench.start(fs, stop.get_token());
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code(), Code::kCancelled);
    EXPECT_TRUE(bench.worker.trained.empty());
  }
}

TEST(Client, FileBeyondTheLimitIsNotLoaded) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.options.file_bytes_max = 100;
  std::stop_source stop;
  bench.events.on_event = [&](const std::string&) { stop.request_stop(); };
  ASSERT_FALSE(bench.start(fs, stop.get_token()).ok());
  EXPECT_THAT(bench.events.lines.front(), HasSubstr("the limit is 100"));
}

// --- conditions, rates, jobs

TEST(Client, NoTaskIsTakenWhileAConditionFails) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  bench.options.when.mains = true;
  bench.machine.state.mains = false;
  bench.events.on_event = [&](const std::string& line) {
    if (!line.starts_with("paused")) return;
    EXPECT_TRUE(bench.aggregator.requests().empty());
    bench.machine.state.mains = true;
  };
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(bench.events.lines.front(), "paused the machine runs on battery");
  EXPECT_EQ(bench.aggregator.updates().size(), 3u);
}

TEST(RateLimit, PiecesWaitForTheirTime) {
  RateLimit limit(1000);
  const SteadyTime start{std::chrono::seconds(100)};
  EXPECT_EQ(limit.delay(start, 500), std::chrono::milliseconds(500));
  EXPECT_EQ(limit.delay(start, 500), std::chrono::milliseconds(1000));
  EXPECT_EQ(limit.delay(start + std::chrono::seconds(5), 250), std::chrono::milliseconds(250));
  RateLimit none(0);
  EXPECT_EQ(none.delay(start, 1 << 30), Duration{});
}

TEST(Client, StateOfAnotherJobIsRemoved) {
  MemoryFileSystem fs;
  {
    Bench bench;
    add_tasks(bench.aggregator);
    ASSERT_TRUE(bench.start(fs).ok());
  }
  Bench bench;
  bench.options.job = "another";
  add_tasks(bench.aggregator);
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(bench.worker.carries.at("1-train"), "");
  EXPECT_EQ(bench.aggregator.updates(), reference().updates);
}

TEST(Client, FilesOfOldTasksAreRemoved) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(fs.list(kDirectory / "files")->size(), 1u);
}

// --- faults of the network

TEST(Client, FaultOfAnyRequestChangesNoResult) {
  const std::vector<Fault> faults = {
      {Fault::Kind::kLostRequest}, {Fault::Kind::kLostAnswer}, {Fault::Kind::kCut, 0},
      {Fault::Kind::kCut, 1},      {Fault::Kind::kCut, 7},     {Fault::Kind::kCut, 100},
      {Fault::Kind::kCut, 399},    {Fault::Kind::kCut, 400},   {Fault::Kind::kCut, 1'000'000}};
  const std::size_t requests = reference().requests;
  ASSERT_GT(requests, 15u);
  for (std::size_t at = 0; at < requests; ++at)
    for (const Fault& fault : faults) {
      Bench bench;
      MemoryFileSystem fs;
      add_tasks(bench.aggregator);
      bench.fault = [&](std::size_t number, const net::ClientRequest&) {
        return number == at ? fault : Fault{};
      };
      const auto outcome = bench.start(fs);
      ASSERT_TRUE(outcome.ok()) << outcome.error();
      ASSERT_EQ(difference(bench, fs), "")
          << "request " << at << ", fault " << static_cast<int>(fault.kind) << " " << fault.bytes;
      for (const auto& [task, times] : bench.worker.trained) EXPECT_EQ(times, 1) << task;
    }
}

TEST(Client, HalfOfTheRequestsFail) {
  for (const auto kind : {Fault::Kind::kLostRequest, Fault::Kind::kLostAnswer, Fault::Kind::kCut}) {
    Bench bench;
    MemoryFileSystem fs;
    add_tasks(bench.aggregator);
    const auto rng = seeded_rng(5);
    bench.fault = [&](std::size_t, const net::ClientRequest&) {
      return rng->below(2) == 0 ? Fault{kind, 150} : Fault{};
    };
    const auto outcome = bench.start(fs);
    ASSERT_TRUE(outcome.ok()) << outcome.error();
    EXPECT_EQ(difference(bench, fs), "");
  }
}

TEST(Client, StoredPartsOfTransfersAreNotSentAgain) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  std::vector<std::string> ranges;
  bool cut = false;
  bench.fault = [&](std::size_t, const net::ClientRequest& request) {
    const auto range = request.headers.find("Range");
    if (range) ranges.emplace_back(*range);
    if (request.method != "GET" || request.url.find("/v1/models") == std::string::npos || cut)
      return Fault{};
    cut = true;
    return Fault{Fault::Kind::kCut, 500};
  };
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(ranges.front(), "bytes=500-");
  EXPECT_EQ(difference(bench, fs), "");
}

TEST(Client, RestartOfTheAggregatorDuringAnUploadIsHarmless) {
  Bench bench;
  MemoryFileSystem fs;
  add_tasks(bench.aggregator);
  int puts = 0;
  bench.fault = [&](std::size_t, const net::ClientRequest& request) {
    if (request.method == "PUT" && ++puts == 2) bench.aggregator.forget_uploads();
    return Fault{};
  };
  ASSERT_TRUE(bench.start(fs).ok());
  EXPECT_EQ(difference(bench, fs), "");
}

TEST(Client, BusyAggregatorIsAskedAgain) {
  for (const int status : {401, 408, 429, 500, 503}) {
    Bench bench;
    MemoryFileSystem fs;
    add_tasks(bench.aggregator);
    for (const char* request : {"GET /v1/task", "GET /v1/models", "HEAD /v1/updates",
                                "PUT /v1/updates", "PUT /v1/evaluations"}) {
      // A list of refusals ends with the first retry that the client reports.
      bench.aggregator.refuse(request, status);
    }
    bench.events.on_event = [&](const std::string& line) {
      if (line.starts_with("retrying")) bench.aggregator.stop_refusing();
    };
    const auto outcome = bench.start(fs);
    ASSERT_TRUE(outcome.ok()) << outcome.error();
    EXPECT_EQ(difference(bench, fs), "") << status;
  }
}

// --- kills

TEST(Client, KillAtAnyRequestChangesNoResult) {
  for (std::size_t at = 0; at < reference().requests; ++at)
    for (const auto kind : {Fault::Kind::kLostRequest, Fault::Kind::kLostAnswer}) {
      Bench bench;
      MemoryFileSystem fs;
      add_tasks(bench.aggregator);
      std::stop_source stop;
      bench.fault = [&](std::size_t number, const net::ClientRequest&) {
        if (number != at) return Fault{};
        stop.request_stop();
        return Fault{kind};
      };
      const auto killed = bench.start(fs, stop.get_token());
      ASSERT_FALSE(killed.ok());
      ASSERT_EQ(killed.error().code(), Code::kCancelled) << killed.error();
      bench.fault = [](std::size_t, const net::ClientRequest&) { return Fault{}; };
      const auto outcome = bench.start(fs);
      ASSERT_TRUE(outcome.ok()) << outcome.error();
      ASSERT_EQ(difference(bench, fs), "") << "request " << at;
      for (const auto& [task, times] : bench.worker.trained)
        EXPECT_EQ(times, 1) << task << ", killed at request " << at;
    }
}

/// Ends the run at call `at` of the disk, then continues on what a kill or a power cut left.
void check_disk_kill(std::uint64_t at, bool power_cut, bool& reached) {
  Bench bench;
  CrashingFileSystem fs(at + 1);
  add_tasks(bench.aggregator);
  std::unique_ptr<CrashingFileSystem> left;
  std::map<std::string, bool> complete;  // tasks with an update that stayed on the disk
  std::uint64_t calls = 0;
  bool looking = false;
  std::string place;
  fs.on_call([&](std::string_view call, const os::Path& path) -> Status {
    if (looking) return {};
    if (left) return Error(Code::kInternal, "the machine is off");
    if (calls++ != at) return {};
    looking = true;
    place = std::string(call) + " " + path.string();
    left = power_cut ? fs.crashed(at + 7) : fs.killed();
    looking = false;
    return Error(Code::kInternal, "the machine is off");
  });
  const auto killed = bench.start(fs);
  reached = left != nullptr;
  if (!reached) return;
  ASSERT_FALSE(killed.ok());
  const auto trained = bench.worker.trained;
  {
    const auto copy = left->killed();
    const auto state = State::open(*copy, kDirectory, bench.options.url);
    ASSERT_TRUE(state.ok()) << state.error();
    if (state->pending()) complete[state->pending()->task] = true;
  }
  for (const auto& [task, bytes] : bench.aggregator.updates()) complete[task] = true;
  const auto outcome = bench.start(*left);
  ASSERT_TRUE(outcome.ok()) << outcome.error();
  ASSERT_EQ(difference(bench, *left), "")
      << (power_cut ? "power cut" : "kill") << " at call " << at << ", " << place;
  for (const auto& [task, times] : trained) {
    const bool again = complete.contains(task) && bench.worker.trained.at(task) != times;
    EXPECT_FALSE(again) << task << " was complete, and trained again";
  }
}

TEST(Client, KillAtAnyCallOfTheDiskChangesNoResult) {
  for (std::uint64_t at = 0;; ++at) {
    bool reached = false;
    check_disk_kill(at, false, reached);
    if (!reached || HasFatalFailure()) {
      EXPECT_GT(at, 100u);
      break;
    }
  }
}

TEST(Client, PowerCutAtAnyCallOfTheDiskChangesNoResult) {
  for (std::uint64_t at = 0;; ++at) {
    bool reached = false;
    check_disk_kill(at, true, reached);
    if (!reached || HasFatalFailure()) {
      EXPECT_GT(at, 100u);
      break;
    }
  }
}

TEST(Client, FullDiskEndsTheClientWithAnError) {
  Bench bench;
  MemoryFileSystem fs(2000);
  add_tasks(bench.aggregator);
  const auto outcome = bench.start(fs);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code(), Code::kExhausted);
}

}  // namespace client_test

}  // namespace
}  // namespace varda::participant
