// The client with the real engine: rounds of a small model, without and with a server on a port.
#include "federated.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "aggregator_client.h"
#include "codec/ed25519.h"
#include "codec/json.h"
#include "codec/yaml.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "net/server.h"
#include "os/testing/test_directory.h"
#include "participant/testing/fake_aggregator.h"
#include "train/testing/model_builder.h"
#include "worker/testing/fake_agent.h"

namespace varda::trainapp {
namespace federated_test {

using codec::Json;
using federated::Weights;
using participant::Assignment;
using participant::Task;
using tensor::DType;
using tensor::Tensor;
using ::testing::Contains;
using ::testing::HasSubstr;

class Quiet final : public training::Observer {
 public:
  void progress(const training::Progress&) override {}
  void epoch(const training::EpochRecord&) override {}
};

Tensor matrix(std::int64_t rows, std::int64_t columns, float value) {
  const std::vector<float> values(static_cast<std::size_t>(rows * columns), value);
  return Tensor::of<float>(DType::kFp32, {rows, columns}, std::span(values)).value();
}

/// scores = (x * w) * v, with w [2,3] and v [3,3].
std::string two_layers() {
  Tensor v = Tensor::copy(DType::kFp32, {3, 3}, matrix(3, 3, 0).bytes()).value();
  for (int i = 0; i < 3; ++i) v.mutable_values<float>()[4 * i] = 1;
  return train::testing::ModelBuilder()
      .input("x", DType::kFp32, {-1, 2})
      .initializer("w", matrix(2, 3, 0.125f))
      .initializer("v", v)
      .node({.op_type = "MatMul", .inputs = {"x", "w"}, .outputs = {"h"}})
      .node({.op_type = "MatMul", .inputs = {"h", "v"}, .outputs = {"scores"}})
      .output("scores")
      .bytes();
}

Weights weights_of(float w) {
  Tensor v = Tensor::copy(DType::kFp32, {3, 3}, matrix(3, 3, 0).bytes()).value();
  for (int i = 0; i < 3; ++i) v.mutable_values<float>()[4 * i] = 1;
  const std::vector<tensor::Named> tensors = {{"w", matrix(2, 3, w)}, {"v", v}};
  return Weights::of(tensors).value();
}

std::string rows(const std::vector<std::string>& labels) {
  std::string out = "a,b,label\n";
  for (int i = 0; i < 60; ++i) {
    const std::size_t label = static_cast<std::size_t>(i) % labels.size();
    out += std::to_string(label * 2 + static_cast<std::size_t>(i % 2)) + "," +
           std::to_string(i % 5) + "," + labels[label] + "\n";
  }
  return out;
}

class FederatedRounds : public ::testing::Test {
 protected:
  FederatedRounds() {
    options_.job.model = directory_.write("m.onnx", two_layers());
    options_.job.data.path = directory_.write("train.csv", rows({"0", "1", "2"}));
    options_.job.directory = directory_ / "out";
    options_.job.hold_out = 0;
    options_.directory = directory_ / "out";
    std::filesystem::create_directories(options_.directory);
    task_.id = "1-train";
    task_.round = 1;
    task_.rounds = 5;
    task_.train.trainer =
        codec::parse_yaml("{batchSize: 8, threads: 1, optimizer: {learningRate: 0.05}}").value();
  }

  Result<participant::TrainedUpdate> train(FederatedWorker& worker, const std::string& carry = "") {
    return worker.train(Context::background(), assignment(carry));
  }
  Assignment assignment(const std::string& carry = "") {
    return {.task = task_, .model = model_, .control = control_, .carry = carry};
  }
  FederatedWorker worker() { return {options_, engines_, os::real_file_system(), quiet_}; }

  const os::testing::TestDirectory directory_;
  infer::Engines engines_{{VARDA_ENGINES}};
  Quiet quiet_;
  FederatedWorker::Options options_;
  Task task_;
  Weights model_ = weights_of(0.125f);
  const Weights* control_ = nullptr;
};

TEST_F(FederatedRounds, UpdateIsInTheOrderOfTheLayout) {
  auto client = worker();
  const auto update = train(client);
  ASSERT_TRUE(update.ok()) << update.error();
  ASSERT_EQ(update->delta.size(), 15u);
  EXPECT_EQ(update->samples, 60u);
  EXPECT_EQ(update->steps, 8u);
  EXPECT_TRUE(update->control.empty());
  EXPECT_TRUE(update->carry.empty());
  EXPECT_GT(update->metrics["loss"].as_double(), 0);
  // v comes before w. With equal columns in w, its gradient is that of the biases of the classes.
  Weights next = model_;
  for (std::size_t i = 0; i < 15; ++i) next.values()[i] += update->delta[i];
  EXPECT_NE(next.tensor("w")[0], 0.125f);
  model_ = next;
  EXPECT_LT(train(client)->metrics["loss"].as_double(), update->metrics["loss"].as_double());
}

TEST_F(FederatedRounds, FrozenWeightsHaveNoDifference) {
  task_.train.trainer.set("freeze", Json::array({"v"}));
  auto client = worker();
  const auto update = train(client);
  ASSERT_TRUE(update.ok()) << update.error();
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(update->delta[i], 0);
  EXPECT_NE(update->delta[9], 0);
}

TEST_F(FederatedRounds, ControlVariatesAreCarriedToTheNextRound) {
  task_.train.use_control = true;
  auto client = worker();
  const auto first = train(client);
  ASSERT_TRUE(first.ok()) << first.error();
  ASSERT_EQ(first->control.size(), 15u);
  EXPECT_FALSE(first->carry.empty());
  // The next own variate is the mean gradient. Weights did not change, so the change is near 0 if
  // the first variate was carried, and the server has the same one.
  Weights server(model_.layout_pointer(), first->control);
  control_ = &server;
  const auto second = train(client, first->carry);
  ASSERT_TRUE(second.ok()) << second.error();
  double carried = 0, first_change = 0;
  for (std::size_t i = 0; i < 15; ++i) {
    carried += std::abs(second->control[i]);
    first_change += std::abs(first->control[i]);
  }
  EXPECT_LT(carried, 0.01 * first_change);
  const auto broken = train(client, "not a file");
  EXPECT_TRUE(broken.ok()) << broken.error();
}

TEST_F(FederatedRounds, LossBeforeIsThatOfTheModel) {
  task_.train.loss_before = true;
  auto client = worker();
  const auto update = train(client);
  ASSERT_TRUE(update.ok()) << update.error();
  EXPECT_NE(update->metrics["loss"].as_double(), update->metrics["trainingLoss"].as_double());
}

TEST_F(FederatedRounds, SettingsOfTheClientWin) {
  options_.trainer = codec::parse_yaml("{batchSize: 60, optimizer: {momentum: 0.5}}").value();
  auto client = worker();
  const auto update = train(client);
  ASSERT_TRUE(update.ok()) << update.error();
  EXPECT_EQ(update->steps, 1u);
}

TEST_F(FederatedRounds, ClientWithOneClassTrains) {
  options_.job.data.path = directory_.write("ones.csv", rows({"1"}));
  auto client = worker();
  const auto update = train(client);
  ASSERT_TRUE(update.ok()) << update.error();
  EXPECT_EQ(update->samples, 60u);
}

TEST_F(FederatedRounds, OtherModelIsRefused) {
  const std::vector<tensor::Named> other = {{"w", matrix(2, 4, 1)}};
  model_ = Weights::of(other).value();
  auto client = worker();
  const auto update = train(client);
  ASSERT_FALSE(update.ok());
  EXPECT_THAT(update.error().message(), HasSubstr("weight \"w\" is FP32 [2,4]; the model has"));
}

TEST_F(FederatedRounds, ModelOfTheAggregatorIsUsed) {
  options_.job.model = "";
  auto client = worker();
  const auto without = train(client);
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().message(), HasSubstr("the aggregator sends no ONNX file"));
  options_.job.data.path = directory_.write("names.csv", rows({"blue", "green", "red"}));
  auto named = worker();
  task_.file.emplace().labels = {"red", "green", "blue"};
  Assignment given = assignment();
  given.model_file = directory_.write("sent.onnx", two_layers());
  const auto update = named.train(Context::background(), given);
  ASSERT_TRUE(update.ok()) << update.error();
  EXPECT_TRUE(std::filesystem::exists(directory_ / "out/model/model.onnx"));
}

TEST_F(FederatedRounds, EvaluationUsesTheHeldOutSamples) {
  options_.job.hold_out = 0.25;
  auto client = worker();
  const auto before = client.evaluate(Context::background(), assignment());
  ASSERT_TRUE(before.ok()) << before.error();
  EXPECT_EQ(before->samples, 15u);
  EXPECT_TRUE(before->metrics.contains("accuracy"));
  options_.job.hold_out = 0;
  auto none = worker();
  EXPECT_EQ(none.evaluate(Context::background(), assignment())->samples, 0u);
}

TEST_F(FederatedRounds, PrivateRoundsKeepTheirKeyAndTheirLoss) {
  options_.client.privacy = PrivacySettings{.clip_norm = 0.5, .noise = 1};
  auto client = worker();
  const auto update = train(client);
  ASSERT_TRUE(update.ok()) << update.error();
  EXPECT_FALSE(update->metrics.contains("loss"));
  const os::Path key = directory_ / "out/noise.key";
  EXPECT_EQ(std::filesystem::file_size(key), 32u);
  EXPECT_EQ(std::filesystem::status(key).permissions(), std::filesystem::perms(0600));
  auto again = worker();
  EXPECT_EQ(train(again)->delta, update->delta) << "the same key after a restart";
  std::filesystem::remove(key);
  auto other = worker();
  EXPECT_NE(train(other)->delta, update->delta);
}

TEST(ClientSettings, MembersAreReadAndRefused) {
  const auto read = [](const char* yaml) {
    return parse_client_settings(codec::parse_yaml(yaml).value());
  };
  const auto all = read(
      "{when: {idle: 0.5}, bytesPerSecond: 1000, nice: 10, threads: 1, keepOptimizer: true, "
      "privacy: {clipNorm: 2}}");
  ASSERT_TRUE(all.ok()) << all.error();
  EXPECT_EQ(all->when.idle, 0.5);
  EXPECT_EQ(all->bytes_per_second, 1000);
  EXPECT_EQ(all->privacy->clip_norm, 2);
  EXPECT_EQ(all->privacy->noise, 1);
  EXPECT_THAT(read("{when: {moon: full}}").error().message(), HasSubstr("when: unknown setting"));
  EXPECT_THAT(read("{privacy: {clipNorm: 0}}").error().message(), HasSubstr("privacy.clipNorm"));
  EXPECT_THAT(read("{speed: 1}").error().message(), HasSubstr("speed"));
}

TEST(FederatedContract, VariablesOfThePodAreRead) {
  const Environment environment = {
      {"TRAIN_DATASET_URL", "/data/train.csv"},
      {"MODEL_URL", "/run/client"},
      {"NAMESPACE", "default"},
      {"WORKER_NAME", "digits-train-1f2e"},
      {"AGG_IP", "fd00::7"},
      {"AGG_PORT", "7400"},
      {"FEDERATED", R"({"job": "digits", "uid": "5f1c"})"},
      {"PARAMETERS", R"({"rounds": 20, "client": {"bytesPerSecond": 5000, "nice": 5}})"}};
  const auto client = read_federated_contract(environment, os::real_file_system());
  ASSERT_TRUE(client.ok()) << client.error();
  EXPECT_EQ(client->protocol.url, "http://[fd00::7]:7400");
  EXPECT_EQ(client->protocol.client, "default/digits-train-1f2e");
  EXPECT_EQ(client->protocol.job, "5f1c");
  EXPECT_EQ(client->protocol.bytes_per_second, 5000u);
  EXPECT_EQ(client->worker.client.nice, 5);
  EXPECT_TRUE(client->worker.job.confine_data);
  EXPECT_EQ(client->protocol.directory, "/run/client/client");
  const auto none = read_federated_contract({}, os::real_file_system());
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message(), HasSubstr("TRAIN_DATASET_URL"));
  Environment wrong = environment;
  wrong["PARAMETERS"] = R"({"client": {"nice": 99}})";
  const auto refused = read_federated_contract(wrong, os::real_file_system());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("PARAMETERS.client: nice"));
}

TEST(FederatedContract, SecureAggregationIsADemandOfTheControlPlane) {
  Environment environment = {{"TRAIN_DATASET_URL", "/data/train.csv"},
                             {"MODEL_URL", "/run/client"},
                             {"PARAMETERS", R"({"rounds": 20})"}};
  const auto secure_of = [&](const std::string& parameters) {
    environment["PARAMETERS"] = parameters;
    return read_federated_contract(environment, os::real_file_system());
  };
  EXPECT_FALSE(secure_of(R"({"rounds": 20})")->protocol.secure.required);
  const auto unsigned_keys = secure_of(R"({"secureAggregation": {}})");
  ASSERT_TRUE(unsigned_keys.ok()) << unsigned_keys.error();
  EXPECT_TRUE(unsigned_keys->protocol.secure.required);
  EXPECT_TRUE(unsigned_keys->protocol.secure.trusted_signers.empty());

  const os::testing::TestDirectory files;
  const auto key = codec::Ed25519PrivateKey::generate();
  const os::Path file = files / "key.pem";
  ASSERT_TRUE(os::write_file_atomically(os::real_file_system(), file, key.pem()).ok());
  const std::string signers =
      R"("secureAggregation": {"signers": [")" + key.public_key().base64() + R"("]})";
  const auto with_key =
      secure_of(R"({"client": {"signingKeyFile": ")" + file.string() + R"("}, )" + signers + "}");
  ASSERT_TRUE(with_key.ok()) << with_key.error();
  EXPECT_EQ(with_key->protocol.secure.trusted_signers.size(), 1u);
  EXPECT_EQ(with_key->protocol.secure.signing_key->public_key(), key.public_key());
  EXPECT_THAT(secure_of("{" + signers + "}").error().message(), HasSubstr("signingKeyFile"));
  EXPECT_THAT(secure_of(R"({"secureAggregation": {"signers": ["x"]}})").error().message(),
              HasSubstr("Ed25519"));
}

/// An aggregator on a port, and an agent on a socket.
class FederatedPod : public FederatedRounds {
 protected:
  FederatedPod() {
    server_ = net::Server::create({}, aggregator_.handler()).value();
    agent_.start();
    const Json model = aggregator_.add_file(weights_of(0.125f).to_safetensors().value());
    for (const char* id : {"1-train", "2-train"})
      aggregator_.add_task(
          Json::object({{"id", id},
                        {"kind", "train"},
                        {"round", 1},
                        {"rounds", 2},
                        {"model", model},
                        {"train", Json::object({{"trainer", task_.train.trainer}})}}));
    environment_ = {{"BASE_MODEL_URL", options_.job.model.string()},
                    {"TRAIN_DATASET_URL", options_.job.data.path.string()},
                    {"MODEL_URL", (directory_ / "run")},
                    {"WORKER_NAME", "client-1"},
                    {"AGG_IP", "127.0.0.1"},
                    {"AGG_PORT", std::to_string(server_->port())},
                    {"VARDA_WORKER_SOCKET", agent_.socket()},
                    {"VARDA_WORKER_TOKEN_FILE", agent_.token_file()}};
  }
  int work() {
    return work_federated(Context::background(), environment_,
                          {.engines = engines_,
                           .fs = os::real_file_system(),
                           .api = {.first_pause = std::chrono::milliseconds(1)},
                           .reporter = {.every = std::chrono::milliseconds(1)}});
  }

  participant::FakeAggregator aggregator_;
  std::unique_ptr<net::Server> server_;
  worker::FakeAgent agent_;
  Environment environment_;
};

TEST_F(FederatedPod, JobIsDoneAndReported) {
  EXPECT_EQ(work(), 0);
  EXPECT_EQ(aggregator_.updates().size(), 2u);
  const auto update = federated::UpdateReader::of(aggregator_.updates().at("1-train"),
                                                  model_.layout_pointer(), {.task = "1-train"});
  ASSERT_TRUE(update.ok()) << update.error().error;
  EXPECT_EQ((*update)->info().samples, 54u) << "a tenth is held out";
  EXPECT_EQ(agent_.body("/v1/results/final")["data"]["accepted"].as_integer(), 2);
  EXPECT_THAT(agent_.requests(), Contains("PUT /v1/progress"));
  EXPECT_EQ(work(), 0) << "a finished client ends at once";
  EXPECT_EQ(aggregator_.accepted_times("2-train"), 1);
}

TEST_F(FederatedPod, WrongDataEndWithTwoAndAReason) {
  environment_["TRAIN_DATASET_URL"] = directory_ / "missing.csv";
  EXPECT_EQ(work(), 2);
  EXPECT_TRUE(agent_.body("/v1/results/error")["data"]["permanent"].as_bool());
}

TEST_F(FederatedPod, PodWithoutAnAddressNamesTheVariable) {
  environment_.erase("AGG_IP");
  environment_.erase("VARDA_WORKER_SOCKET");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(work(), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("AGG_IP is missing"));
}

/// Answers with a status, or an error.
class OneAnswer final : public net::HttpClient {
 public:
  explicit OneAnswer(Result<int> answer) : answer_(std::move(answer)) {}
  Result<net::ClientResponse> send(const Context&, net::ClientRequest) override {
    ++*count;
    TRY(const int status, answer_);
    net::ClientResponse out;
    out.status = status;
    return out;
  }
  std::shared_ptr<int> count = std::make_shared<int>(0);

 private:
  Result<int> answer_;
};

TEST(AggregatorClient, AddressReplacesAStreamThatTheNodeLacks) {
  const auto both = [](Result<int> stream, int& streams, int& addresses) {
    auto first = std::make_unique<OneAnswer>(std::move(stream));
    auto second = std::make_unique<OneAnswer>(200);
    const auto a = first->count, b = second->count;
    AggregatorClient client(std::move(first), std::move(second));
    const auto one = client.send(Context::background(), {});
    const auto two = client.send(Context::background(), {});
    streams = *a;
    addresses = *b;
    return one.ok() && two.ok();
  };
  int streams = 0, addresses = 0;
  EXPECT_TRUE(both(200, streams, addresses));
  EXPECT_EQ(streams, 2);
  EXPECT_EQ(addresses, 0);
  EXPECT_TRUE(both(Error(Code::kNotFound, "404"), streams, addresses));
  EXPECT_EQ(streams, 1);
  EXPECT_EQ(addresses, 2);
  EXPECT_FALSE(both(Error(Code::kUnavailable, "503"), streams, addresses));
  EXPECT_EQ(streams, 2) << "a busy agent is asked again";
  EXPECT_EQ(addresses, 0);
}

}  // namespace federated_test
}  // namespace varda::trainapp
