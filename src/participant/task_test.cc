#include "participant/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "codec/json.h"

namespace varda::participant {
namespace {

namespace task_test {

using codec::Json;
using ::testing::HasSubstr;

const std::string kHex(64, 'a');

Json train_task() {
  return Json::object({{"id", "3-train-5f1c"},
                       {"kind", "train"},
                       {"round", 3},
                       {"rounds", 20},
                       {"model", Json::object({{"sha256", kHex}, {"bytes", 91234}})},
                       {"secondsLeft", 117.5},
                       {"train", Json::object({{"localEpochs", 2},
                                               {"seed", 17},
                                               {"trainer", Json::object({{"batchSize", 8}})},
                                               {"proximal", 0.01}})},
                       {"update", Json::object({{"encoding", "int8"}, {"bytesMax", 104857600}})}});
}

Result<Task> parse(const Json& json) { return parse_task(codec::write_json(json)); }

std::string message_with(std::string_view path, Json value) {
  Json json = train_task();
  json.make(path) = std::move(value);
  const auto task = parse(json);
  return task.ok() ? "accepted" : task.error().message();
}

TEST(Task, TrainTaskOfTheDocumentIsRead) {
  const auto task = parse(train_task());
  ASSERT_TRUE(task.ok()) << task.error();
  EXPECT_EQ(task->id, "3-train-5f1c");
  EXPECT_EQ(task->kind, Task::Kind::kTrain);
  EXPECT_EQ(task->round, 3);
  EXPECT_EQ(task->rounds, 20);
  EXPECT_EQ(task->model.digest.hex(), kHex);
  EXPECT_EQ(task->model.bytes, 91234u);
  EXPECT_EQ(task->seconds_left, 117.5);
  EXPECT_EQ(task->train.local_epochs, 2);
  EXPECT_EQ(task->train.seed, 17u);
  EXPECT_EQ(task->train.proximal, 0.01);
  EXPECT_EQ(task->train.trainer["batchSize"].as_integer(), 8);
  EXPECT_FALSE(task->train.use_control);
  EXPECT_EQ(task->update.encoding, federated::Encoding::kInt8);
  EXPECT_EQ(task->update.bytes_max, 104857600u);
}

TEST(Task, UnknownMembersAreIgnored) {
  EXPECT_EQ(message_with("news", 1), "accepted");
  EXPECT_EQ(message_with("train/news", 1), "accepted");
}

TEST(Task, EndNeedsNoModel) {
  const auto task = parse(Json::object({{"id", "end-1"},
                                        {"kind", "end"},
                                        {"failed", true},
                                        {"reason", "NoQuorum"},
                                        {"message", "5 rounds"}}));
  ASSERT_TRUE(task.ok()) << task.error();
  EXPECT_TRUE(task->failed);
  EXPECT_EQ(task->message, "NoQuorum: 5 rounds");
}

TEST(Task, FilesOfTheModelAndTheVariateAreRead) {
  Json json = train_task();
  json.make("file") = Json::object(
      {{"sha256", kHex}, {"bytes", 5}, {"labels", Json::array({"a", "b"})}, {"yaml", "name: x"}});
  json.make("train/control") = Json::object({{"sha256", kHex}, {"bytes", 6}});
  const auto task = parse(json);
  ASSERT_TRUE(task.ok()) << task.error();
  EXPECT_EQ(task->file->labels.size(), 2u);
  EXPECT_EQ(task->train.control->bytes, 6u);
  EXPECT_TRUE(task->train.use_control);
  json.make("train/control") = true;
  EXPECT_TRUE(parse(json)->train.use_control);
  EXPECT_FALSE(parse(json)->train.control);
}

TEST(Task, HostileMembersAreNamed) {
  EXPECT_THAT(message_with("id", "../etc"), HasSubstr("id must be"));
  EXPECT_THAT(message_with("id", "a/b"), HasSubstr("id must be"));
  EXPECT_THAT(message_with("id", ""), HasSubstr("id must be"));
  EXPECT_THAT(message_with("id", std::string(129, 'a')), HasSubstr("id must be"));
  EXPECT_THAT(message_with("kind", "dance"), HasSubstr("kind"));
  EXPECT_THAT(message_with("model/sha256", "AAAA"), HasSubstr("model.sha256"));
  EXPECT_THAT(message_with("model/bytes", -1), HasSubstr("model.bytes"));
  EXPECT_THAT(message_with("model/bytes", 1e300), HasSubstr("model.bytes"));
  EXPECT_THAT(message_with("model", Json()), HasSubstr("model.sha256"));
  EXPECT_THAT(message_with("train/localEpochs", 0), HasSubstr("train.localEpochs"));
  EXPECT_THAT(message_with("train/seed", -1), HasSubstr("train.seed"));
  EXPECT_THAT(message_with("train/proximal", -0.1), HasSubstr("train.proximal"));
  EXPECT_THAT(message_with("train/trainer", "x"), HasSubstr("train.trainer"));
  EXPECT_THAT(message_with("update/encoding", "zip"), HasSubstr("update.encoding"));
  EXPECT_THAT(message_with("update/keep", 0), HasSubstr("update.keep"));
  EXPECT_FALSE(parse_task("").ok());
  EXPECT_FALSE(parse_task("[]").ok());
  EXPECT_FALSE(parse_task(std::string(2 << 20, ' ')).ok());
}

TEST(Task, SecureAggregationIsReadOrRefusedAsAWhole) {
  Json json = train_task();
  json.make("update/encoding") = "dense";
  json.make("secure") = Json::object({{"sum", "job/3-train"},
                                      {"client", "default/w"},
                                      {"length", 11},
                                      {"limit", 8},
                                      {"weightMax", 65536}});
  const auto task = parse(json);
  ASSERT_TRUE(task.ok()) << task.error();
  ASSERT_TRUE(task->secure);
  EXPECT_EQ(task->secure->length, 11u);
  EXPECT_EQ(task->secure->weight_max, 65536);
  EXPECT_FALSE(task->secure->clip);
  const auto refused = [&](const std::string& path, const Json& value) {
    Json changed = json;
    changed.make(path) = value;
    const auto read = parse(changed);
    return read.ok() ? "accepted" : read.error().message();
  };
  // A client that ignored a broken member would send an unprotected update.
  EXPECT_THAT(refused("secure", 1), HasSubstr("secure"));
  EXPECT_THAT(refused("secure/sum", ""), HasSubstr("secure"));
  EXPECT_THAT(refused("secure/client", std::string(600, 'x')), HasSubstr("secure"));
  EXPECT_THAT(refused("secure/length", 1), HasSubstr("secure"));
  EXPECT_THAT(refused("secure/length", 1e300), HasSubstr("secure"));
  EXPECT_THAT(refused("secure/limit", 0), HasSubstr("secure"));
  EXPECT_THAT(refused("secure/clip", -1), HasSubstr("secure.clip"));
  EXPECT_THAT(refused("secure/weightMax", 0), HasSubstr("secure.weightMax"));
  EXPECT_THAT(refused("update/encoding", "int8"), HasSubstr("update.encoding"));
}

}  // namespace task_test

}  // namespace
}  // namespace varda::participant
