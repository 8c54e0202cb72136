// DatasetUser: a Dataset, and its files on nodes.
#pragma once

#include "requests.h"
#include "user.h"

namespace varda::sim {

class DatasetUser final : public User {
 public:
  DatasetUser(World& world, std::string name)
      : world_(world),
        dataset_(world, "edgeai.io/v1alpha1", "datasets", "Dataset", std::move(name)) {}

  void act() override;
  std::optional<std::string> settled() override;
  void add_work(const Machine& machine, WorkKeys& keys) const override;

 private:
  std::string file() const {
    return std::string(Machine::kDatasets) + "/" + dataset_.name() + ".csv";
  }
  std::string draw_node();
  void change_file(Machine& machine);

  World& world_;
  Object dataset_;
};

}  // namespace varda::sim
