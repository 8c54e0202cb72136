#include "aggregator/secure_round.h"

#include <algorithm>
#include <utility>

namespace varda::aggregator {
namespace {

using codec::Json;
using Message = SecureRound::Message;

constexpr std::pair<std::string_view, Message> kMessages[] = {{"keys", Message::kKeys},
                                                              {"shares", Message::kShares},
                                                              {"opened", Message::kOpened},
                                                              {"unmask", Message::kUnmask}};

SecureRound::Step step_of(Message message) {
  switch (message) {
    case Message::kKeys:
      return SecureRound::Step::kKeys;
    case Message::kShares:
      return SecureRound::Step::kShares;
    case Message::kOpened:
      return SecureRound::Step::kOpened;
    case Message::kUnmask:
      return SecureRound::Step::kUnmask;
  }
  return SecureRound::Step::kKeys;
}

Error wrong_step() {
  return {Code::kConflict, "this step of the secure sum is over or not yet due"};
}

}  // namespace

std::string_view to_string(Message message) {
  for (const auto& [text, one] : kMessages)
    if (one == message) return text;
  return "";
}

std::optional<Message> parse_secure_message(std::string_view text) {
  for (const auto& [known, message] : kMessages)
    if (known == text) return message;
  return std::nullopt;
}

SecureRound::SecureRound(std::string task, const Options& options, SteadyTime now)
    : task_(std::move(task)),
      step_time_(options.step_time),
      server_(std::make_unique<privacy::SumServer>(
          options.sum, privacy::SumServer::Options{.degree = options.neighbours,
                                                   .seed = options.seed,
                                                   .trusted_signers = options.trusted_signers})),
      deadline_(now + options.step_time) {}

Status SecureRound::put(const std::string& client, Message message, const Json& json) {
  // A client that lost the answer sends the message again.
  if (message == Message::kKeys && step_ != Step::kKeys) {
    const auto at = keys_.find(client);
    if (at != keys_.end() && at->second == codec::write_json(json)) return {};
  }
  const bool takes_part = shares_.contains(client);
  if (message == Message::kShares && takes_part &&
      (step_ == Step::kOpened || step_ == Step::kVectors))
    return {};
  if (message == Message::kOpened && takes_part && step_ == Step::kVectors) return {};
  if (step_ != step_of(message)) return wrong_step();
  // The rounds' thread computes the sum: it has enough shares.
  if (!server_) return {};
  Status status;
  switch (message) {
    case Message::kKeys:
      status = server_->take_keys(client, json);
      break;
    case Message::kShares:
      status = server_->take_shares(client, json);
      break;
    case Message::kOpened:
      status = server_->take_opened(client, json);
      break;
    case Message::kUnmask:
      status = server_->take_unmasking(client, json);
      break;
  }
  if (!status.ok()) {
    if (status.error().code() == Code::kAlreadyExists)
      return Error(Code::kConflict, status.error().message());
    return status;
  }
  if (message == Message::kKeys) keys_.emplace(client, codec::write_json(json));
  if (message == Message::kShares) shares_.insert(client);
  if (message == Message::kOpened) opened_.insert(client);
  return {};
}

Result<std::optional<Json>> SecureRound::get(const std::string& client, Message message) const {
  const auto nothing = [] { return std::optional<Json>(); };
  if (step_ == Step::kKeys) return nothing();
  if (!keys_.contains(client))
    return Error(Code::kForbidden, "the client sent no keys before the secure sum began");
  if (message == Message::kKeys) {
    if (!server_) return wrong_step();
    Json out = server_->neighbours_of(client);
    out.set("clients", keys_.size());
    return std::optional(std::move(out));
  }
  if (step_ == Step::kShares) return nothing();
  if (!shares_.contains(client))
    return Error(Code::kForbidden, "the round's secure sum has no part for this client's shares");
  if (message == Message::kShares) {
    if (!server_) return wrong_step();
    return std::optional(server_->shares_for(client));
  }
  if (step_ == Step::kOpened) return nothing();
  if (message == Message::kOpened) {
    if (!server_) return wrong_step();
    return std::optional(server_->members_of(client));
  }
  if (step_ == Step::kVectors || !server_) return nothing();
  if (!server_->summed().contains(client))
    return Error(Code::kForbidden, "the client's vector is not in the secure sum");
  return std::optional(server_->request_for(client));
}

Result<std::optional<std::set<std::string>>> SecureRound::advance(
    const std::set<std::string>& working, std::size_t least, SteadyTime now) {
  const auto nothing = [] { return std::optional<std::set<std::string>>(); };
  if (step_ == Step::kVectors || step_ == Step::kUnmask) return nothing();
  const bool is_over = now >= deadline_;
  if (is_over) deadline_ = now + step_time_;
  std::set<std::string> known;
  for (const auto& [client, keys] : keys_) known.insert(client);
  if (step_ == Step::kKeys) {
    const bool complete = std::includes(known.begin(), known.end(), working.begin(), working.end());
    if (keys_.size() < std::max<std::size_t>(least, 3) || !(complete || is_over)) return nothing();
    TRY_VOID(server_->close_keys());
    step_ = Step::kShares;
    deadline_ = now + step_time_;
    return std::optional(std::move(known));
  }
  const bool opens = step_ == Step::kOpened;
  const std::set<std::string>& expected = opens ? shares_ : known;
  const std::set<std::string>& sent = opens ? opened_ : shares_;
  const bool complete =
      std::all_of(expected.begin(), expected.end(), [&](const std::string& client) {
        return sent.contains(client) || !working.contains(client);
      });
  if (!complete && !is_over) return nothing();
  const Status closed = opens ? server_->close_opened() : server_->close_shares();
  if (opens) {
    refused_ = server_->refused();
    shares_ = server_->members();
  }
  if (shares_.size() < least)
    return Error(Code::kUnavailable, std::to_string(shares_.size()) +
                                         " clients sent shares of keys, and the round needs " +
                                         std::to_string(least));
  TRY_VOID(closed);
  step_ = opens ? Step::kVectors : Step::kOpened;
  deadline_ = now + step_time_;
  return std::optional(shares_);
}

std::optional<SteadyTime> SecureRound::due() const {
  if (step_ == Step::kVectors) return std::nullopt;
  return deadline_;
}

void SecureRound::return_server(std::unique_ptr<privacy::SumServer> server, Step step,
                                SteadyTime now) {
  server_ = std::move(server);
  if (step_ == step) return;
  step_ = step;
  deadline_ = now + step_time_;
}

}  // namespace varda::aggregator
