#include "participant/client.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "codec/json.h"
#include "federated/update.h"
#include "participant/internal/presence.h"
#include "participant/internal/secure_session.h"
#include "participant/state.h"
#include "participant/transfer.h"
#include "privacy/mechanism.h"

namespace varda::participant {
namespace {

using codec::Json;
using federated::Weights;
using std::chrono::milliseconds;

/// An update that another client of the same task would not round alike: rounding errors of equal
/// seeds would add up.
std::uint64_t rounding_seed(const std::string& task, const std::string& client) {
  const codec::Sha256 digest = codec::Sha256::of(task + "\n" + client);
  std::uint64_t out = 0;
  std::memcpy(&out, digest.bytes.data(), sizeof out);
  return out >> 1;
}

/// Local differential privacy, docs/design/031-privacy.md. The seed is never stored.
void make_private(const Task::Update::Noise& wanted, TrainedUpdate& update) {
  double squares = 0;
  for (const float value : update.delta) squares += static_cast<double>(value) * value;
  const auto factor = static_cast<float>(privacy::clip_factor(std::sqrt(squares), wanted.clip));
  for (float& value : update.delta) value *= factor;
  privacy::add_noise(privacy::random_key(), wanted.deviation, update.delta);
}

std::string evaluation_body(const Evaluated& result) {
  const Json metrics = result.metrics.is_object() ? result.metrics : Json::object();
  return codec::write_json(Json::object({{"samples", result.samples}, {"metrics", metrics}}));
}

/// Another try may help.
bool is_transient(const Error& error) { return error.code() == Code::kUnavailable; }
bool is_end(const Error& error) {
  return error.code() == Code::kCancelled || error.code() == Code::kTimeout;
}

class Client {
 public:
  Client(const Context& ctx, const Options& options, net::HttpClient& http, os::FileSystem& fs,
         Worker& worker, Machine& machine, Observer& observer)
      : ctx_(ctx),
        options_(options),
        http_(http),
        fs_(fs),
        worker_(worker),
        machine_(machine),
        observer_(observer),
        transfer_({.url = options.url,
                   .client = options.client,
                   .request_timeout = options.request_timeout,
                   .piece_bytes_max = options.piece_bytes_max,
                   .piece_bytes_min =
                       std::min<std::size_t>(std::size_t{64} << 10, options.piece_bytes_max)},
                  http, fs, RateLimit(options.bytes_per_second)) {}

  Result<Outcome> run() {
    TRY(State opened,
        State::open(fs_, options_.directory, options_.job.empty() ? options_.url : options_.job));
    state_.emplace(std::move(opened));
    for (;;) {
      if (!state_->pending()) secure_.reset();  // the task failed
      if (state_->pending()) TRY_VOID(send_update());
      if (secure_) TRY_VOID(reveal());
      TRY_VOID(wait_for_conditions());
      TRY(const std::optional<Task> task, next_task());
      if (!task) continue;
      if (task->kind == Task::Kind::kEnd) return end(*task);
      TRY_VOID(work(*task));
    }
  }

 private:
  // --- waiting

  /// Pauses before another try. The context ends the tries, or `give_up_after`.
  Status pause(const Error& error, std::optional<milliseconds> least = std::nullopt) {
    const SteadyTime now = system_clock().now();
    if (!failing_since_) failing_since_ = now;
    if (options_.give_up_after.count() > 0 && now - *failing_since_ >= options_.give_up_after) {
      return Error(
          Code::kUnavailable,
          "no usable answer of the aggregator for " +
              std::to_string(
                  std::chrono::ceil<std::chrono::seconds>(options_.give_up_after).count()) +
              " s, so the job has probably ended: " + error.message());
    }
    if (error.message() != reported_) {
      reported_ = error.message();
      observer_.retrying(reported_);
    }
    pause_ =
        pause_.count() == 0 ? options_.first_pause : std::min(2 * pause_, options_.longest_pause);
    milliseconds length = least ? std::max(pause_, *least) : pause_;
    // Clients of a restarted aggregator return at different times.
    length -= milliseconds(
        static_cast<milliseconds::rep>(static_cast<double>(length.count()) / 2 * rng_.unit()));
    return ctx_.sleep_for(length);
  }
  void went_well() {
    progressed();
    reported_.clear();
  }
  void progressed() {
    pause_ = {};
    failing_since_.reset();
  }

  Status wait_for_conditions() {
    std::string shown;
    while (const auto reason = reason_to_wait(options_.when, machine_.look())) {
      if (shown.empty()) observer_.paused(*reason);
      shown = *reason;
      TRY_VOID(ctx_.sleep_for(options_.conditions_every));
    }
    return {};
  }

  // --- tasks

  /// Nothing: no task now.
  Result<std::optional<Task>> next_task() {
    observer_.waiting();
    std::string target = "/v1/task?wait=" + std::to_string(options_.poll.count());
    if (!state_->last_task().empty()) target += "&after=" + state_->last_task();
    const auto answer = transfer_.call(ctx_, "GET", target, "", options_.poll);
    if (!answer.ok()) {
      TRY_VOID(ctx_.check());
      TRY_VOID(pause(answer.error()));
      return std::optional<Task>();
    }
    if (answer->status == 204) {
      went_well();
      return std::optional<Task>();
    }
    if (answer->status != 200) {
      // A client that the job does not know yet may be a participant later.
      const bool refused = !may_pass(answer->status);
      TRY_VOID(pause(Error(Code::kUnavailable, message_of(answer->status, answer->body)),
                     refused ? std::optional(options_.longest_pause) : std::nullopt));
      return std::optional<Task>();
    }
    auto task = parse_task(answer->body);
    if (!task.ok()) {
      TRY_VOID(pause(task.error(), options_.longest_pause));
      return std::optional<Task>();
    }
    if (task->id == state_->last_task() && task->kind != Task::Kind::kEnd) {
      TRY_VOID(pause(Error(Code::kUnavailable, "the aggregator repeats the task " + task->id)));
      return std::optional<Task>();
    }
    went_well();
    return std::optional(std::move(*task));
  }

  Result<Outcome> end(const Task& task) {
    outcome_.failed = task.failed;
    outcome_.message = task.message;
    outcome_.received_bytes = transfer_.received_bytes();
    outcome_.sent_bytes = transfer_.sent_bytes();
    return outcome_;
  }

  Status work(const Task& task) {
    // Keys first: clients that are slow to load and to train must not delay the others' exchange.
    if (task.kind == Task::Kind::kTrain) {
      TRY(const bool takes_part, join(task));
      if (!takes_part) return state_->done(task.id);
    }
    observer_.downloading(task);
    TRY(const bool complete, download(task));
    if (!complete) return {};  // the round is over
    Status status = task.kind == Task::Kind::kTrain ? train(task) : evaluate(task);
    if (status.ok()) {
      failures_ = 0;
      has_worked_ = true;
      return {};
    }
    TRY_VOID(ctx_.check());
    if (is_end(status.error()) || is_lost(status.error())) return status;
    // Data or settings are probably wrong from the start, so a person must look at them.
    if (!has_worked_) return status;
    // Without an answer, the other clients would wait for this one.
    if (task.kind == Task::Kind::kEvaluate)
      (void)transfer_.call(ctx_, "PUT", "/v1/evaluations/" + task.id, evaluation_body({}));
    // Another task may have other weights or settings.
    observer_.skipped(task, status.error());
    log::warn("task skipped", {{"task", task.id}, {"error", status.error()}});
    if (++failures_ >= options_.failures_max) return status;
    return state_->done(task.id);
  }

  /// The disk of the state fails: another task cannot go better.
  static bool is_lost(const Error& error) {
    return error.code() == Code::kExhausted || error.code() == Code::kInternal;
  }

  // --- secure aggregation

  /// False: the round continues without this client.
  Result<bool> join(const Task& task) {
    secure_.reset();
    if (!task.secure) {
      if (!options_.secure.required) return true;
      return Error(Code::kInvalid,
                   "the job promises secure aggregation, but the aggregator asks for an update "
                   "without masks");
    }
    auto session = SecureSession::join(task, options_.secure, exchange(task.id));
    if (session.ok()) {
      secure_ = std::move(*session);
      return secure_ != nullptr;
    }
    if (is_end(session.error())) return session.error();
    log::warn("secure aggregation refused", {{"task", task.id}, {"error", session.error()}});
    observer_.skipped(task, session.error());
    return false;
  }

  SecureSession::Exchange exchange(const std::string& task) {
    return [this, task](const SecureSession::Request& request) -> Result<std::optional<Json>> {
      const bool waits = request.method == "GET";
      std::string target = "/v1/secure/" + task + "/" + request.part;
      if (waits) target += "?wait=" + std::to_string(options_.poll.count());
      const std::string body = waits ? std::string() : codec::write_json(request.body);
      for (;;) {
        const auto answer = transfer_.call(ctx_, request.method, target, body,
                                           waits ? options_.poll : std::chrono::seconds(0));
        if (!answer.ok() && !is_transient(answer.error())) return answer.error();
        if (answer.ok() && !may_pass(answer->status)) {
          went_well();
          if (answer->status == 204) continue;
          if (answer->status == 200) {
            TRY(Json json, codec::parse_json(answer->body, {.depth_max = 8, .nodes_max = 10'000}));
            return std::optional(std::move(json));
          }
          log::info("round continues without this client",
                    {{"task", task}, {"reason", message_of(answer->status, answer->body)}});
          return std::optional<Json>();
        }
        TRY_VOID(pause(answer.ok()
                           ? Error(Code::kUnavailable, message_of(answer->status, answer->body))
                           : answer.error()));
      }
    };
  }

  /// Waits until the round has all vectors.
  Status reveal() {
    observer_.waiting();
    const std::unique_ptr<SecureSession> session = std::move(secure_);
    const Status status = session->reveal(exchange(session->task()));
    if (status.ok() || is_end(status.error())) return status;
    log::warn("shares not revealed", {{"task", session->task()}, {"error", status.error()}});
    return {};
  }

  // --- downloads

  std::vector<Task::File> files_of(const Task& task) const {
    std::vector<Task::File> out = {task.model};
    if (task.file) out.push_back(*task.file);
    if (task.train.control) out.push_back(*task.train.control);
    return out;
  }

  /// False: the aggregator has another task now.
  Result<bool> download(const Task& task) {
    const std::vector<Task::File> files = files_of(task);
    std::vector<codec::Sha256> digests;
    for (const Task::File& file : files) digests.push_back(file.digest);
    TRY_VOID(state_->remove_files_except(digests));
    for (const Task::File& file : files) {
      if (file.bytes > options_.file_bytes_max) {
        TRY_VOID(pause(Error(Code::kInvalid,
                             "a file of the task has " + std::to_string(file.bytes) +
                                 " bytes; the limit is " + std::to_string(options_.file_bytes_max)),
                       options_.longest_pause));
        return false;
      }
      for (;;) {
        const std::uint64_t before = transfer_.received_bytes();
        const Status status =
            transfer_.download(ctx_, file.digest, file.bytes, state_->file_path(file.digest));
        if (status.ok()) break;
        if (is_end(status.error()) || is_lost(status.error())) return status.error();
        if (status.error().code() == Code::kNotFound) {
          TRY_VOID(pause(status.error()));
          return false;
        }
        // A link that breaks often still makes progress.
        if (is_transient(status.error()) && transfer_.received_bytes() > before) progressed();
        TRY_VOID(pause(status.error()));
      }
      went_well();
    }
    return true;
  }

  Result<Weights> read_weights(const codec::Sha256& digest) {
    TRY(std::string bytes,
        os::read_file(fs_, state_->file_path(digest), options_.file_bytes_max + 1));
    return Weights::parse(std::move(bytes));
  }

  struct Files {
    Weights model;
    std::optional<Weights> control;
  };
  Result<Files> read_files(const Task& task) {
    TRY(Weights model, read_weights(task.model.digest).context("the model of the task"));
    Files out{std::move(model), std::nullopt};
    if (task.train.control) {
      TRY(out.control, read_weights(task.train.control->digest).context("the control variate"));
    }
    return out;
  }

  Assignment assignment_of(const Task& task, const Files& files) {
    Assignment out{.task = task,
                   .model = files.model,
                   .control = files.control ? &*files.control : nullptr,
                   .checkpoint = state_->checkpoint_path(),
                   .carry = state_->carry()};
    if (task.file) out.model_file = state_->file_path(task.file->digest);
    return out;
  }

  // --- work

  /// The result of `function`; nothing if it is useless meanwhile.
  template <typename Function>
  auto while_present(const Task& task, Function function) -> Result<
      std::optional<typename std::invoke_result_t<Function, const Context&>::value_type>> {
    using Value = typename std::invoke_result_t<Function, const Context&>::value_type;
    const Presence presence(
        ctx_,
        {.target = "/v1/task?wait=" + std::to_string(options_.poll.count()) + "&after=" + task.id,
         .every = options_.presence_every,
         .wait = options_.poll,
         .until =
             task.secure ? Presence::Options::Until::kNextTask : Presence::Options::Until::kEnd},
        Transfer({.url = options_.url,
                  .client = options_.client,
                  .request_timeout = options_.request_timeout},
                 http_, fs_, RateLimit(0)));
    auto result = function(presence.context());
    if (!result.ok() && is_end(result.error()) && presence.is_over() && !ctx_.done())
      return std::optional<Value>();
    if (!result.ok()) return std::move(result).error();
    return std::optional<Value>(std::move(result).value());
  }

  Status train(const Task& task) {
    TRY(const Files files, read_files(task));
    observer_.training(task);
    auto result = while_present(
        task, [&](const Context& ctx) { return worker_.train(ctx, assignment_of(task, files)); });
    if (!result.ok()) return result.error();
    if (!*result) return state_->done(task.id);  // the job has ended, or the secure round
    TrainedUpdate trained = std::move(**result);
    observer_.trained(task, trained);
    if (const auto& noise = task.update.noise) make_private(*noise, trained);
    const federated::Layout& layout = files.model.layout();
    if (secure_) {
      TRY(const std::string masked, secure_->masked(task, trained));
      return state_->keep(task.id, masked, layout, {}, trained.carry);
    }
    // Dense FP32 loses nothing, so there is no error to feed back.
    const bool exact = task.update.encoding == federated::Encoding::kDense &&
                       task.update.dtype == tensor::DType::kFp32;
    std::vector<float> residual;
    if (!exact) residual = state_->residual(layout);
    TRY(const std::string update,
        federated::encode_update({.task = task.id,
                                  .base = task.model.digest,
                                  .samples = trained.samples,
                                  .steps = trained.steps,
                                  .metrics = trained.metrics},
                                 layout, trained.delta,
                                 {.encoding = task.update.encoding,
                                  .dtype = task.update.dtype,
                                  .keep = task.update.keep,
                                  .seed = rounding_seed(task.id, options_.client),
                                  .residual = residual,
                                  .control = trained.control}));
    if (task.update.bytes_max > 0 && update.size() > task.update.bytes_max)
      return Error(Code::kInvalid, "the update has " + std::to_string(update.size()) +
                                       " bytes; the aggregator takes " +
                                       std::to_string(task.update.bytes_max));
    return state_->keep(task.id, update, layout, residual, trained.carry);
  }

  Status send_update() {
    const Pending pending = *state_->pending();
    observer_.uploading(pending.task, pending.bytes);
    for (;;) {
      const std::uint64_t before = transfer_.sent_bytes();
      auto result = transfer_.upload(ctx_, pending.task, pending.digest, pending.bytes,
                                     state_->update_path());
      if (result.ok()) {
        went_well();
        return answered(pending, *result);
      }
      const Error& error = result.error();
      if (is_end(error) || is_lost(error)) return error;
      if (!is_transient(error)) {
        // The bytes on the disk are damaged.
        log::error("update lost", {{"task", pending.task}, {"error", error}});
        observer_.dropped(pending.task, 0, error.message());
        ++outcome_.dropped;
        secure_.reset();
        return state_->dropped();
      }
      if (transfer_.sent_bytes() > before) progressed();
      TRY_VOID(pause(error));
    }
  }

  Status answered(const Pending& pending, const UploadResult& result) {
    if (result.answer == Answer::kAccepted) {
      TRY_VOID(state_->accepted());
      ++outcome_.accepted;
      observer_.accepted(pending.task, pending.bytes);
      return {};
    }
    TRY_VOID(state_->dropped());
    secure_.reset();
    ++outcome_.dropped;
    if (result.answer == Answer::kRefused)
      log::error("update refused", {{"task", pending.task}, {"message", result.message}});
    observer_.dropped(pending.task, result.status, result.message);
    return {};
  }

  Status evaluate(const Task& task) {
    TRY(const Files files, read_files(task));
    auto evaluated = while_present(task, [&](const Context& ctx) {
      return worker_.evaluate(ctx, assignment_of(task, files));
    });
    if (!evaluated.ok()) return evaluated.error();
    if (!*evaluated) return state_->done(task.id);
    const Evaluated result = std::move(**evaluated);
    const std::string body = evaluation_body(result);
    for (;;) {
      const auto answer = transfer_.call(ctx_, "PUT", "/v1/evaluations/" + task.id, body);
      if (answer.ok() && !may_pass(answer->status)) {
        went_well();
        if (answer->status / 100 != 2)
          log::warn("evaluation not taken",
                    {{"task", task.id}, {"message", message_of(answer->status, answer->body)}});
        break;
      }
      if (!answer.ok() && !is_transient(answer.error())) return answer.error();
      TRY_VOID(pause(answer.ok()
                         ? Error(Code::kUnavailable, message_of(answer->status, answer->body))
                         : answer.error()));
    }
    ++outcome_.evaluated;
    observer_.evaluated(task, result);
    return state_->done(task.id);
  }

  const Context& ctx_;
  const Options& options_;
  net::HttpClient& http_;
  os::FileSystem& fs_;
  Worker& worker_;
  Machine& machine_;
  Observer& observer_;
  Transfer transfer_;
  Rng& rng_ = system_rng();
  std::optional<State> state_;
  std::unique_ptr<SecureSession> secure_;  // of the present task
  Outcome outcome_;
  milliseconds pause_{0};  // the last one; 0: no failure since the last success
  std::optional<SteadyTime> failing_since_;
  std::string reported_;
  bool has_worked_ = false;  // a task went well in this process
  int failures_ = 0;         // tasks in a row
};

}  // namespace

Result<Outcome> run(const Context& ctx, const Options& options, net::HttpClient& http,
                    os::FileSystem& fs, Worker& worker, Machine& machine, Observer& observer) {
  return Client(ctx, options, http, fs, worker, machine, observer).run();
}

}  // namespace varda::participant
