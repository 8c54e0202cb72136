#include "aggregator/service.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <thread>

#include "aggregator/testing/sample_job.h"
#include "base/log.h"
#include "net/client.h"
#include "os/testing/test_directory.h"

namespace varda::aggregator {
namespace {
namespace service_test {

using codec::Json;
using Answer = net::HttpClient::Answer;

class Services : public ::testing::Test {
 protected:
  Services() { log::configure(log::Format::kText, log::Level::kError); }
  ~Services() override {
    rounds_ = {};
    if (service_) service_->drain();
    if (server_) server_->stop(std::chrono::milliseconds(0));
    log::configure(log::Format::kText, log::Level::kInfo);
  }

  void start() {
    Coordinator::Options options = sample_.options();
    if (assigned_) options.admission = Coordinator::Options::Admission::kAssigned;
    if (counts_clients_ == Counts::kNo) {
      options.clients_expected = 0;
      options.settle = std::chrono::milliseconds(50);
    }
    job_ =
        Coordinator::open(options, sample_.model(), files_ / "job", os::real_file_system()).value();
    service_ = std::make_unique<Service>(
        *job_,
        Service::Options{.client_of = [](const net::Request& request) -> Result<std::string> {
          const auto name = request.headers.find("Varda-Client");
          if (!name) return Error(Code::kUnauthenticated, "no name");
          return std::string(*name);
        }});
    server_ = net::Server::create(service_->server_options(), service_->handler()).value();
    rounds_ = std::jthread([this](const std::stop_token& stop) { (void)job_->run(Context(stop)); });
  }

  Answer ask(const std::string& client, const std::string& method, const std::string& target,
             std::string body = "", net::Headers headers = {}) {
    if (!client.empty()) headers.add("Varda-Client", client);
    auto answer = http_->call(Context::background().with_timeout(std::chrono::seconds(60)),
                              {.method = method,
                               .url = "http://" + server_->address() + target,
                               .headers = std::move(headers),
                               .body = std::move(body)});
    EXPECT_TRUE(answer.ok()) << answer.error();
    return answer.ok() ? std::move(*answer) : Answer{};
  }
  federated::Task task(const std::string& client, const std::string& after = "") {
    const Answer answer = ask(client, "GET", "/v1/task?wait=50&after=" + after);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json json = codec::parse_json(answer.body).value_or(Json());
    return {.kind = json["kind"].as_string() == "train"      ? federated::Task::Kind::kTrain
                    : json["kind"].as_string() == "evaluate" ? federated::Task::Kind::kEvaluate
                                                             : federated::Task::Kind::kEnd,
            .id = json["id"].as_string(),
            .round = json["round"].as_integer(),
            .model = json["model"]["sha256"].as_string()};
  }
  enum class Counts { kYes, kNo };
  Counts counts_clients_ = Counts::kYes;  // kNo: any number of clients may come
  std::vector<federated::Task> first_tasks() {
    for (const std::string& client : sample_.clients()) ask(client, "GET", "/v1/task?wait=0");
    std::vector<federated::Task> out;
    for (const std::string& client : sample_.clients()) out.push_back(task(client));
    return out;
  }
  static std::string path_of(const std::string& id, const std::string& bytes) {
    return "/v1/updates/" + id + "/sha256:" + codec::Sha256::of(bytes).hex();
  }
  Answer put(const std::string& client, const std::string& id, const std::string& bytes) {
    return ask(client, "PUT", path_of(id, bytes), bytes);
  }
  static std::string reason(const Answer& answer) {
    return codec::parse_json(answer.body).value_or(Json())["reason"].as_string();
  }
  federated::UpdateInfo info(const federated::Task& one) {
    return {.task = one.id, .base = codec::Sha256::parse(one.model).value(), .samples = 10};
  }

  const os::testing::TestDirectory files_;
  SampleJob sample_;
  bool assigned_ = false;
  std::unique_ptr<Coordinator> job_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<net::Server> server_;
  std::jthread rounds_;
  const std::unique_ptr<net::HttpClient> http_ = net::make_client({});
};

TEST_F(Services, RoundOpensSoonAfterTheMinimumOfClientsIfTheirNumberIsUnknown) {
  counts_clients_ = Counts::kNo;
  start();
  for (const std::string& client : sample_.clients()) ask(client, "GET", "/v1/task?wait=0");
  EXPECT_EQ(task(sample_.clients()[0]).kind, federated::Task::Kind::kTrain);
}

TEST_F(Services, JobRunsFromTheFirstTaskToTheEnd) {
  sample_.settings.evaluation.every = 1;
  start();
  first_tasks();
  std::map<std::string, std::string> after;
  for (int guard = 0; guard < 100 && after.size() < 4; ++guard) {
    bool ended = true;
    for (const std::string& client : sample_.clients()) {
      const federated::Task one = task(client, after[client]);
      after[client] = one.id;
      ended &= one.kind == federated::Task::Kind::kEnd;
      if (one.kind == federated::Task::Kind::kTrain) {
        EXPECT_EQ(put(client, one.id, sample_.update(client, one)).status, 201);
        EXPECT_EQ(put(client, one.id, sample_.update(client, one)).status, 200);
      } else if (one.kind == federated::Task::Kind::kEvaluate) {
        EXPECT_EQ(ask(client, "PUT", "/v1/evaluations/" + one.id,
                      R"({"samples": 5, "metrics": {"accuracy": 0.5}})")
                      .status,
                  200);
      }
    }
    if (ended) break;
  }
  const Snapshot end = job_->snapshot();
  EXPECT_EQ(end.phase, federated::RoundMachine::Phase::kFinished);
  EXPECT_EQ(end.reason, "Complete");
  ASSERT_EQ(end.history.size(), 2u);
  EXPECT_EQ(end.history[1].evaluation.at("accuracy"), 0.5);
  EXPECT_TRUE(
      job_->metrics_csv().starts_with("round,attempts,clients,updates,refused,samples,seconds,"
                                      "model,train_loss,accuracy\n1,1,3,3,"));
}

TEST_F(Services, TaskNamesItsFiles) {
  start();
  const federated::Task one = first_tasks()[0];
  const Answer whole = ask("default/c0", "GET", "/v1/models/sha256:" + one.model);
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(codec::Sha256::of(whole.body).hex(), one.model);
  const Answer part =
      ask("default/c0", "GET", "/v1/models/sha256:" + one.model, "", {{"Range", "bytes=8-"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, whole.body.substr(8));
  EXPECT_EQ(ask("default/c0", "GET", "/v1/models/sha256:" + std::string(64, '0')).status, 404);
  EXPECT_EQ(ask("default/c0", "GET", "/v1/models/sha256:../state.json").status, 400);
}

TEST_F(Services, UploadContinuesAtTheOffset) {
  start();
  const federated::Task one = first_tasks()[0];
  const std::string bytes = sample_.update("default/c0", one);
  const std::string path = path_of(one.id, bytes);
  EXPECT_EQ(ask("default/c0", "HEAD", path).status, 404);
  const auto range = [&](std::size_t first, std::size_t last) {
    return net::Headers{{"Content-Range", "bytes " + std::to_string(first) + "-" +
                                              std::to_string(last - 1) + "/" +
                                              std::to_string(bytes.size())}};
  };
  const Answer piece = ask("default/c0", "PUT", path, bytes.substr(0, 100), range(0, 100));
  EXPECT_EQ(piece.status, 202);
  EXPECT_EQ(piece.headers.find("Upload-Offset"), "100");
  const Answer gap = ask("default/c0", "PUT", path, bytes.substr(200), range(200, bytes.size()));
  EXPECT_EQ(gap.status, 409);
  EXPECT_EQ(gap.headers.find("Upload-Offset"), "100");
  EXPECT_EQ(ask("default/c1", "HEAD", path).headers.find("Upload-Offset"), "0");
  EXPECT_EQ(ask("default/c0", "PUT", path, bytes.substr(100), range(100, bytes.size())).status,
            201);
  EXPECT_EQ(ask("default/c0", "HEAD", path).status, 200);
}

TEST_F(Services, HostileUpdatesAreRefusedWithAReason) {
  start();
  const auto tasks = first_tasks();
  const federated::Task& one = tasks[0];
  std::string good = sample_.update("default/c0", one);
  // Refusals of content count for the client, so each case has its own job.
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    rounds_ = {};
    service_->drain();
    server_->stop(std::chrono::milliseconds(0));
    server_.reset();
    service_.reset();
    job_.reset();
    std::filesystem::remove_all(files_ / "job");
    start();
    first_tasks();
    const Answer answer = put("default/c0", one.id, bytes);
    EXPECT_EQ(answer.status, 422) << answer.body;
    EXPECT_EQ(reason(answer), why) << answer.body;
    // The client is out of this round, whatever it sends.
    EXPECT_EQ(put("default/c0", one.id, good).status, 422);
  };
  refused("no safetensors at all", "format");
  refused(good.substr(0, good.size() - 4), "format");
  std::string huge = good;
  const std::uint64_t length = std::uint64_t{1} << 63;
  std::memcpy(huge.data(), &length, sizeof length);
  refused(huge, "format");
  federated::UpdateInfo other = info(one);
  other.task = "2-train-00000000";
  refused(sample_.update(other, "default/c0", 1), "task");
  other = info(one);
  other.base = codec::Sha256::of("another model");
  refused(sample_.update(other, "default/c0", 1), "base");
  std::string nan = good;
  const float value = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(nan.data() + nan.size() - sizeof value, &value, sizeof value);
  refused(nan, "not_finite");
  std::string dtype = good;
  dtype.replace(dtype.find("\"F32\""), 5, "\"I32\"");
  refused(dtype, "format");
  const auto layout = federated::Layout::make({{"bias", tensor::DType::kFp32, {4}}}).value();
  refused(federated::encode_update(info(one), *layout, std::vector<float>(4, 1)).value(), "shape");
}

TEST_F(Services, UpdateBeyondTheNormIsRefused) {
  sample_.settings.bounds.norm_max = 1;
  start();
  const federated::Task one = first_tasks()[0];
  const Answer answer = put("default/c0", one.id, sample_.update(info(one), "default/c0", 1, 100));
  EXPECT_EQ(answer.status, 422);
  EXPECT_EQ(reason(answer), "norm");
}

TEST_F(Services, HostileRequestsAreRefused) {
  start();
  const federated::Task one = first_tasks()[0];
  const std::string good = sample_.update("default/c0", one);
  const std::string path = path_of(one.id, good);
  EXPECT_EQ(ask("", "GET", "/v1/task").status, 401);
  EXPECT_EQ(ask("", "PUT", path, good).status, 401);
  EXPECT_EQ(ask("default/c0", "GET", "/v1/task?wait=-1").status, 400);
  EXPECT_EQ(ask("default/c0", "PUT", "/v1/updates/" + one.id + "/sha256:xyz", good).status, 400);
  EXPECT_EQ(ask("default/c0", "PUT", "/v1/updates/" + one.id, good).status, 404);
  EXPECT_EQ(ask("default/c0", "GET", "/v1/nothing").status, 404);
  EXPECT_EQ(ask("default/c0", "GET", "/").status, 404);
  EXPECT_EQ(ask("default/c0", "DELETE", "/v1/task").status, 405);
  EXPECT_EQ(ask("default/c0", "DELETE", path).status, 405);
  EXPECT_EQ(put("default/c0", "1-train-00000000", good).status, 409);
  EXPECT_EQ(put("default/c0", "1-evaluate-00000000", good).status, 409);
  EXPECT_EQ(put("default/c9", one.id, good).status, 403);  // no client of this round
  for (const char* range :
       {"bytes 0-1/9223372036854775808", "bytes 0-9223372036854775807/9223372036854775807",
        "bytes 5-2/10", "bytes 0-1", "octets 0-1/2", "bytes 0-18446744073709551615/1", ""})
    EXPECT_GE(ask("default/c0", "PUT", path, "xy", {{"Content-Range", range}}).status, 400)
        << range;
  EXPECT_EQ(
      ask("default/c0", "PUT", path, "xy", {{"Content-Range", "bytes 0-1/1099511627776"}}).status,
      413);
  // Another content than the digest of the path.
  EXPECT_EQ(ask("default/c0", "PUT", path, std::string(good.size(), 'x')).status, 422);
  for (const char* body :
       {"", "[]", "{", "{}", R"({"samples": -1, "metrics": {"a": 1}})",
        R"({"samples": 1, "metrics": {}})", R"({"samples": 1, "metrics": {"a": "b"}})",
        R"({"samples": 1e999, "metrics": {"a": 1}})"})
    EXPECT_EQ(ask("default/c0", "PUT", "/v1/evaluations/" + one.id, body).status, 400) << body;
  // After all that, the honest update counts.
  EXPECT_EQ(put("default/c0", one.id, good).status, 201);
}

TEST_F(Services, ClientOutsideOfTheJobIsForbidden) {
  start();
  job_->set_participants(std::set<std::string>{"default/c0", "default/c1", "default/c2"});
  EXPECT_EQ(ask("default/c7", "GET", "/v1/task").status, 403);
  EXPECT_EQ(ask("default/c0", "GET", "/v1/task").status, 204);
}

TEST_F(Services, NoClientTakesPartBeforeTheParticipantsAreKnown) {
  assigned_ = true;
  start();
  EXPECT_EQ(ask("default/c0", "GET", "/v1/task").status, 503);
  job_->set_participants(std::set<std::string>{"default/c0"});
  EXPECT_EQ(ask("default/c0", "GET", "/v1/task").status, 204);
}

TEST_F(Services, PollWaitsForTheTaskAndIsReplacedByANewerOne) {
  start();
  Answer first;
  std::thread waiting([&] { first = ask("default/c0", "GET", "/v1/task?wait=50"); });
  while (service_->polls() == 0) std::this_thread::yield();
  Answer second;
  std::thread newer([&] { second = ask("default/c0", "GET", "/v1/task?wait=50"); });
  waiting.join();
  EXPECT_EQ(first.status, 204);
  for (const std::string& client : sample_.clients())
    if (client != "default/c0") ask(client, "GET", "/v1/task?wait=0");
  newer.join();
  EXPECT_EQ(second.status, 200);
}

TEST_F(Services, RestartedServerKnowsTheAcceptedUpdates) {
  start();
  const auto tasks = first_tasks();
  const std::string bytes = sample_.update("default/c0", tasks[0]);
  EXPECT_EQ(put("default/c0", tasks[0].id, bytes).status, 201);
  rounds_ = {};
  service_->drain();
  server_->stop(std::chrono::milliseconds(0));
  server_.reset();
  service_.reset();
  job_.reset();
  start();
  EXPECT_EQ(ask("default/c0", "HEAD", path_of(tasks[0].id, bytes)).status, 200);
  EXPECT_EQ(task("default/c1").id, tasks[1].id);
  EXPECT_EQ(job_->snapshot().updates, 1);
}

}  // namespace service_test
}  // namespace
}  // namespace varda::aggregator
