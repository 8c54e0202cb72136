#include "flower/adapter.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "base/mutex.h"

namespace varda::flower {
namespace {

std::string host_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return colon == std::string::npos ? address : address.substr(0, colon);
}

/// The numbers among the scalars.
std::map<std::string, double> numbers_of(const Scalars& scalars) {
  std::map<std::string, double> out;
  for (const auto& [name, scalar] : scalars) {
    std::optional<double> value;
    if (const auto* real = std::get_if<double>(&scalar)) value = *real;
    if (const auto* number = std::get_if<std::int64_t>(&scalar))
      value = static_cast<double>(*number);
    if (const auto* number = std::get_if<std::uint64_t>(&scalar))
      value = static_cast<double>(*number);
    if (value && std::isfinite(*value)) out.emplace(name, *value);
  }
  return out;
}

Result<std::vector<Array>> arrays_of(const Parameters& parameters) {
  std::vector<Array> out;
  out.reserve(parameters.tensors.size());
  for (const std::string_view tensor : parameters.tensors) {
    auto array = Array::parse(tensor);
    if (!array.ok()) return std::move(array).error().context("array " + std::to_string(out.size()));
    out.push_back(std::move(array).value());
  }
  return out;
}

Error outcome_error(const Outcome& outcome) {
  const bool never = outcome.code >= Outcome::Code::kGetPropertiesNotImplemented &&
                     outcome.code <= Outcome::Code::kEvaluateNotImplemented;
  const std::string text = outcome.message.substr(0, 200);
  return Error(never ? Code::kUnsupported : Code::kInvalid,
               "the client answers with status " +
                   std::to_string(static_cast<std::int64_t>(outcome.code)) +
                   (text.empty() ? "" : ": " + text));
}

struct FlowerClient {
  enum class Phase {
    kNew,
    kIdle,     // no task
    kAsked,    // the client has a task
    kLeaving,  // asked to leave
    kGone,
  };
  std::string name, host;
  std::size_t slot = 0;
  std::shared_ptr<Session> session;

  // Guarded by the adapter's mutex.
  Phase phase = Phase::kNew;
  bool queued = false;   // in the queue of the threads
  bool working = false;  // a thread works for this client
  bool gone = false;     // the call is over
  std::optional<Result<Answer>> answer;

  // Only the thread that works for the client uses these.
  bool joined = false;
  Task task;
};

using ClientPointer = std::shared_ptr<FlowerClient>;

}  // namespace

struct Adapter::Impl final : SessionListener {
  Impl(Options o, Rounds& r) : options(std::move(o)), rounds(r) {
    rounds.on_change([this] { changed(); });
    for (std::size_t i = 0; i < std::max<std::size_t>(options.threads, 1); ++i)
      threads.emplace_back([this] { work(); });
  }
  ~Impl() {
    {
      const MutexLock lock(mutex);
      ending = true;
    }
    ready.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // --- notifications: I/O threads, and the threads of the rounds ---

  void joined(std::shared_ptr<Session> session) override {
    const auto client = std::make_shared<FlowerClient>();
    client->session = std::move(session);
    const net::Peer& peer = client->session->request().peer;
    if (options.name_of) return join_by_name(client, options.name_of(peer));
    client->host = host_of(peer.address);
    {
      const MutexLock lock(mutex);
      if (!stopping) {
        std::vector<bool>& used = slots[client->host];
        client->slot =
            static_cast<std::size_t>(std::find(used.begin(), used.end(), false) - used.begin());
        if (client->slot == used.size()) used.push_back(true);
        used[client->slot] = true;
        client->name = "flower/" + client->host + "/" + std::to_string(client->slot);
        clients.emplace(client->session.get(), client);
        enqueue(client);
        return ready.notify_one();
      }
    }
    client->session->finish(Error(Code::kUnavailable, "the server stops"));
  }

  void join_by_name(const ClientPointer& client, Result<std::string> name) {
    if (!name.ok()) {
      log::warn("refusing Flower client", {{"error", name.error()}});
      return client->session->finish(name.error());
    }
    client->name = *std::move(name);
    ClientPointer former;
    bool refused = false;
    {
      const MutexLock lock(mutex);
      refused = stopping.has_value();
      if (!refused) {
        Name& entry = names[client->name];
        former = std::exchange(entry.newest, client);
        clients.emplace(client->session.get(), client);
        // Behind a former call, the client waits until that one has left.
        if (++entry.open == 1) {
          enqueue(client);
          ready.notify_one();
        }
      }
    }
    if (refused) client->session->finish(Error(Code::kUnavailable, "the server stops"));
    if (former) former->session->finish(Error(Code::kUnavailable, "the client joined again"));
  }

  void left(const std::shared_ptr<Session>& session) override {
    const MutexLock lock(mutex);
    const auto found = clients.find(session.get());
    if (found == clients.end()) return;
    found->second->gone = true;
    enqueue(found->second);
    ready.notify_one();
  }

  void answered(const ClientPointer& client, Result<Answer> answer) {
    const MutexLock lock(mutex);
    client->answer = std::move(answer);
    enqueue(client);
    ready.notify_one();
  }

  void changed() {
    const MutexLock lock(mutex);
    ++generation;
    for (const auto& [session, client] : clients) {
      if (client->phase == FlowerClient::Phase::kIdle) enqueue(client);
    }
    ready.notify_all();
  }

  void enqueue(const ClientPointer& client) REQUIRES(mutex) {
    if (client->queued) return;
    client->queued = true;
    // A thread that works for the client puts it back afterwards.
    if (!client->working) queue.push_back(client);
  }

  // --- threads ---

  void work() {
    mutex.lock();
    while (true) {
      while (queue.empty() && !ending) ready.wait(mutex);
      if (queue.empty()) break;
      const ClientPointer client = std::move(queue.front());
      queue.pop_front();
      client->queued = false;
      client->working = true;
      std::optional<Result<Answer>> answer = std::exchange(client->answer, std::nullopt);
      const bool gone = client->gone;
      mutex.unlock();
      contain("work for a Flower client failed", [&] { step(client, std::move(answer), gone); });
      answer.reset();
      mutex.lock();
      client->working = false;
      if (client->queued) {
        queue.push_back(client);
        ready.notify_one();
      }
    }
    mutex.unlock();
  }

  FlowerClient::Phase phase_of(const ClientPointer& client) {
    const MutexLock lock(mutex);
    return client->phase;
  }
  void set_phase(const ClientPointer& client, FlowerClient::Phase phase) {
    const MutexLock lock(mutex);
    client->phase = phase;
  }

  void step(const ClientPointer& client, std::optional<Result<Answer>> answer, bool gone) {
    if (answer && phase_of(client) == FlowerClient::Phase::kAsked) {
      const bool good = answer->ok();
      if (good) {
        take(*client, **answer);
      } else if (answer->error().code() == Code::kInvalid) {
        rounds.failed(client->name, client->task, answer->error());
      }
      // After an error, the end of the call follows.
      set_phase(client, good ? FlowerClient::Phase::kIdle : FlowerClient::Phase::kLeaving);
    }
    if (gone) return leave(client);
    if (phase_of(client) == FlowerClient::Phase::kNew) {
      const Status joined = rounds.joined(client->name, client->session->request().peer);
      if (!joined.ok()) {
        log::warn("refusing Flower client", {{"client", client->name}, {"error", joined.error()}});
        set_phase(client, FlowerClient::Phase::kLeaving);
        return client->session->finish(joined.error());
      }
      client->joined = true;
      log::info("client of Flower joined", {{"client", client->name}});
      set_phase(client, FlowerClient::Phase::kIdle);
    }
    if (phase_of(client) == FlowerClient::Phase::kIdle) offer(client);
  }

  void offer(const ClientPointer& client) {
    std::uint64_t seen = 0;
    std::optional<std::chrono::seconds> sent_away;
    {
      const MutexLock lock(mutex);
      seen = generation;
      sent_away = stopping;
    }
    if (sent_away) return send_away(client, sent_away->count());
    Result<std::optional<Task>> next = rounds.next(client->name);
    if (!next.ok()) {
      set_phase(client, FlowerClient::Phase::kLeaving);
      return client->session->finish(next.error());
    }
    if (!*next) {
      const MutexLock lock(mutex);
      // The rounds may have changed after next() looked.
      if (generation != seen || stopping) enqueue(client);
      return;
    }
    client->task = *std::move(*next);
    if (client->task.kind == Task::Kind::kLeave) return send_away(client, client->task.seconds);
    const auto instruction = instruction_of(client->task);
    if (!instruction.ok()) {
      rounds.failed(client->name, client->task, instruction.error());
      const MutexLock lock(mutex);
      return enqueue(client);
    }
    set_phase(client, FlowerClient::Phase::kAsked);
    client->session->ask(*instruction,
                         [this, client](Result<Answer> a) { answered(client, std::move(a)); });
  }

  void send_away(const ClientPointer& client, std::int64_t seconds) {
    set_phase(client, FlowerClient::Phase::kLeaving);
    // Clients of flwr close the call with their answer or without one.
    client->session->ask(std::make_shared<const std::string>(encode_reconnect(seconds)),
                         [session = std::weak_ptr<Session>(client->session)](Result<Answer>) {
                           if (const auto open = session.lock()) open->finish({});
                         });
  }

  /// Instructions of one task are equal for all clients, and share their bytes.
  Result<std::shared_ptr<const std::string>> instruction_of(const Task& task) {
    if (task.kind == Task::Kind::kParameters)
      return std::make_shared<const std::string>(encode_get_parameters(task.config));
    CHECK(task.model);
    const Instruction kind =
        task.kind == Task::Kind::kFit ? Instruction::kFit : Instruction::kEvaluate;
    const MutexLock lock(encoding);  // two threads never encode one model twice
    for (const Encoded& one : encoded) {
      if (one.kind != kind || one.model != task.model->id || one.config != task.config) continue;
      if (auto bytes = one.bytes.lock()) return bytes;
    }
    TRY(std::string fresh, encode_instruction(kind, task.model->tensors, task.config));
    auto bytes = std::make_shared<const std::string>(std::move(fresh));
    std::erase_if(encoded, [](const Encoded& one) { return one.bytes.expired(); });
    encoded.push_back(
        {.kind = kind, .model = task.model->id, .config = task.config, .bytes = bytes});
    // Clients that ask soon find it, also if the first client has read it already.
    latest = bytes;
    return bytes;
  }

  void take(FlowerClient& client, const Answer& answer) {
    const Status taken = taken_by_rounds(client, answer);
    if (taken.ok()) return;
    log::warn("answer of a Flower client does not count",
              {{"client", client.name}, {"task", client.task.id}, {"error", taken.error()}});
  }

  Status taken_by_rounds(const FlowerClient& client, const Answer& answer) {
    const Task& task = client.task;
    const auto failed = [&](Error error) -> Status {
      rounds.failed(client.name, task, error);
      return error;
    };
    if (task.kind == Task::Kind::kFit) {
      const auto* fit = std::get_if<FitAnswer>(&answer.message);
      if (!fit) return failed(Error(Code::kInvalid, "the answer is not a FitRes"));
      if (!fit->outcome.ok()) return failed(outcome_error(fit->outcome));
      if (fit->examples < 1) return failed(Error(Code::kInvalid, "num_examples is below 1"));
      const auto arrays = arrays_of(fit->parameters);
      if (!arrays.ok()) return failed(arrays.error());
      return rounds.fitted(client.name, {.task = task.id,
                                         .examples = fit->examples,
                                         .metrics = numbers_of(fit->metrics),
                                         .weights = *arrays});
    }
    if (task.kind == Task::Kind::kEvaluate) {
      const auto* evaluate = std::get_if<EvaluateAnswer>(&answer.message);
      if (!evaluate) return failed(Error(Code::kInvalid, "the answer is not an EvaluateRes"));
      if (!evaluate->outcome.ok()) return failed(outcome_error(evaluate->outcome));
      if (evaluate->examples < 1) return failed(Error(Code::kInvalid, "num_examples is below 1"));
      std::map<std::string, double> metrics = numbers_of(evaluate->metrics);
      if (std::isfinite(evaluate->loss)) metrics.emplace("loss", evaluate->loss);
      return rounds.evaluated(
          client.name,
          {.task = task.id, .examples = evaluate->examples, .metrics = std::move(metrics)});
    }
    const auto* parameters = std::get_if<ParametersAnswer>(&answer.message);
    if (!parameters) return failed(Error(Code::kInvalid, "the answer is not a GetParametersRes"));
    if (!parameters->outcome.ok()) return failed(outcome_error(parameters->outcome));
    const auto arrays = arrays_of(parameters->parameters);
    if (!arrays.ok()) return failed(arrays.error());
    return rounds.initial(client.name, {.task = task.id, .weights = *arrays});
  }

  void leave(const ClientPointer& client) {
    if (std::exchange(client->joined, false)) {
      rounds.left(client->name);
      log::info("client of Flower left", {{"client", client->name}});
    }
    const MutexLock lock(mutex);
    client->phase = FlowerClient::Phase::kGone;
    if (clients.erase(client->session.get()) == 0) return;
    if (options.name_of) {
      leave_name(client);
      return empty.notify_all();
    }
    const auto used = slots.find(client->host);
    used->second[client->slot] = false;
    while (!used->second.empty() && !used->second.back()) used->second.pop_back();
    if (used->second.empty()) slots.erase(used);
    empty.notify_all();
  }

  void leave_name(const ClientPointer& client) REQUIRES(mutex) {
    const auto named = names.find(client->name);
    Name& entry = named->second;
    if (entry.newest == client) entry.newest = nullptr;
    if (--entry.open == 0) {
      names.erase(named);
    } else if (entry.open == 1 && entry.newest) {
      enqueue(entry.newest);
      ready.notify_one();
    }
  }

  void stop(std::chrono::seconds seconds, std::chrono::milliseconds grace) {
    const SteadyTime until = system_clock().now() + grace;
    const MutexLock lock(mutex);
    if (!stopping) stopping = seconds;
    ++generation;
    for (const auto& [session, client] : clients) {
      if (client->phase == FlowerClient::Phase::kIdle) enqueue(client);
    }
    ready.notify_all();
    while (!clients.empty() && empty.wait_until(mutex, until)) {
    }
  }

  /// Calls of one client, with Options::name_of.
  struct Name {
    ClientPointer newest;
    std::size_t open = 0;
  };
  struct Encoded {
    Instruction kind = Instruction::kFit;
    std::string model;
    Scalars config;
    std::weak_ptr<const std::string> bytes;
  };

  const Options options;
  Rounds& rounds;
  Mutex encoding;
  std::vector<Encoded> encoded GUARDED_BY(encoding);
  std::shared_ptr<const std::string> latest GUARDED_BY(encoding);
  Mutex mutex;
  CondVar ready, empty;
  std::deque<ClientPointer> queue GUARDED_BY(mutex);
  std::unordered_map<Session*, ClientPointer> clients GUARDED_BY(mutex);
  std::unordered_map<std::string, std::vector<bool>> slots GUARDED_BY(mutex);
  std::unordered_map<std::string, Name> names GUARDED_BY(mutex);
  std::uint64_t generation GUARDED_BY(mutex) = 0;
  std::optional<std::chrono::seconds> stopping GUARDED_BY(mutex);
  bool ending GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;
};

Adapter::Adapter(Options options, Rounds& rounds)
    : impl_(std::make_unique<Impl>(std::move(options), rounds)) {}
Adapter::~Adapter() = default;

net::GrpcHandler Adapter::handler() { return join(*impl_, impl_->options.limits); }

std::size_t Adapter::clients() const {
  const MutexLock lock(impl_->mutex);
  return impl_->clients.size();
}

void Adapter::stop(std::chrono::seconds seconds, std::chrono::milliseconds grace) {
  impl_->stop(seconds, grace);
}

}  // namespace varda::flower
