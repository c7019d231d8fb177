"""An objective with parameters of its own, which no other objective uses."""

import torch

from fairseq_xl.objectives.mlm import MLM


class Headed(MLM):
    """MLM over hidden states that its own head has transformed."""

    name = "headed"

    def heads(self, model_cfg):
        """A linear map of hidden states."""
        return {self.name: torch.nn.Linear(model_cfg.embed_dim, model_cfg.embed_dim)}

    def loss(self, model, batch):
        """{"headed": `Term` over the masked tokens}."""
        hidden = model.encode(batch["tokens"], languages=batch["languages"], padding_mask=batch["padding_mask"])
        return {self.name: self.predict(model, model.heads[self.name](hidden), batch)}
