// WorkerUser: a JointInferenceService with a user's program as first tier. The program follows its
// assignment and reports.
#pragma once

#include <string>
#include <vector>

#include "joint_user.h"

namespace varda::sim {

class WorkerUser final : public JointUser {
 public:
  using JointUser::JointUser;

  void act() override;
  void add_work(const Machine& machine, WorkKeys& keys) const override;

 protected:
  codec::Json edge_worker() override;
  std::optional<std::string> first_tier_works(Machine& home, const Container& server,
                                              const codec::Json& status) override;
  TiersReported tiers_reported(Machine& home) override;

 private:
  std::string worker_key(const std::string& node) const;
  std::optional<std::string> result_arrived(Machine& home);

  int found_ = 0;  // results so far; each is a new number
};

}  // namespace varda::sim
