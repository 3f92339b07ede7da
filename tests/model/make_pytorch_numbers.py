"""Makes tests/model/pytorch_numbers.h: losses and gradients of two tiny models, computed by PyTorch in double.

Usage: python tests/model/make_pytorch_numbers.py > tests/model/pytorch_numbers.h
Element i of the k-th parameter is 0.4·sin(1.3·k + 0.71·i) (norm weights: 1 + that). Each gradient is given by its norm and
by Σ g_i·cos(0.37·i).
"""
import math

import torch

torch.set_default_dtype(torch.float64)
L, H, HEADS, FFN, V, S, B = 2, 12, 4, 20, 11, 6, 2
IDS = torch.tensor([[(5 * b + 3 * s + s * s) % V for s in range(S)] for b in range(B)])
LABELS = torch.tensor([[(7 * b + 2 * s + 1) % V for s in range(S)] for b in range(B)])
MASK = torch.tensor([[((b + s) % 4) * 0.5 for s in range(S)] for b in range(B)])


def parameters(llama, head, groups):
    qkv = (HEADS + 2 * groups) * head
    shapes = {"embedding.word_embeddings.weight": (V, H)}
    if not llama:
        shapes["embedding.position_embeddings.weight"] = (S, H)
    for i in range(L):
        p = f"decoder.layers.{i}."
        norm = ["weight"] if llama else ["weight", "bias"]
        for n in norm:
            shapes[p + "input_layernorm." + n] = (H,)
        shapes[p + "self_attention.linear_qkv.weight"] = (qkv, H)
        if not llama:
            shapes[p + "self_attention.linear_qkv.bias"] = (qkv,)
        if llama:
            shapes[p + "self_attention.q_layernorm.weight"] = (head,)
            shapes[p + "self_attention.k_layernorm.weight"] = (head,)
        shapes[p + "self_attention.linear_proj.weight"] = (H, HEADS * head)
        if not llama:
            shapes[p + "self_attention.linear_proj.bias"] = (H,)
        for n in norm:
            shapes[p + "pre_mlp_layernorm." + n] = (H,)
        rows = 2 * FFN if llama else FFN
        shapes[p + "mlp.linear_fc1.weight"] = (rows, H)
        if not llama:
            shapes[p + "mlp.linear_fc1.bias"] = (rows,)
        shapes[p + "mlp.linear_fc2.weight"] = (H, FFN)
        if not llama:
            shapes[p + "mlp.linear_fc2.bias"] = (H,)
    for n in ["weight"] if llama else ["weight", "bias"]:
        shapes["decoder.final_layernorm." + n] = (H,)
    if llama:
        shapes["output_layer.weight"] = (V, H)
    result = {}
    for k, (name, shape) in enumerate(shapes.items()):
        count = math.prod(shape)
        values = torch.tensor([0.4 * math.sin(1.3 * k + 0.71 * i) for i in range(count)]).reshape(shape)
        if "layernorm.weight" in name:
            values = values + 1
        result[name] = values.requires_grad_()
    return result


def norm(x, p, name, llama):
    if llama:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * p[name + ".weight"]
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), p[name + ".weight"], p[name + ".bias"], 1e-5)


def rope(x):  # [b, s, heads, d], halves
    d = x.shape[-1]
    freq = 10000.0 ** (-torch.arange(0, d, 2) / d)
    angle = torch.arange(S)[:, None] * freq[None]
    cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(x, p, name, llama, head, groups):
    mixed = torch.nn.functional.linear(x, p[name + "linear_qkv.weight"], p.get(name + "linear_qkv.bias"))
    per = HEADS // groups
    mixed = mixed.view(B, S, groups, per + 2, head)
    q, k, v = mixed[:, :, :, :per].reshape(B, S, HEADS, head), mixed[:, :, :, per], mixed[:, :, :, per + 1]
    if llama:
        q, k = norm(q, p, name + "q_layernorm", True), norm(k, p, name + "k_layernorm", True)
        q, k = rope(q), rope(k)
    k, v = k.repeat_interleave(per, 2), v.repeat_interleave(per, 2)
    scores = torch.einsum("bshd,bthd->bhst", q, k) / math.sqrt(head)
    scores = scores.masked_fill(torch.ones(S, S).triu(1).bool(), float("-inf"))
    o = torch.einsum("bhst,bthd->bshd", scores.softmax(-1), v).reshape(B, S, HEADS * head)
    return torch.nn.functional.linear(o, p[name + "linear_proj.weight"], p.get(name + "linear_proj.bias"))


def mlp(x, p, name, llama):
    h = torch.nn.functional.linear(x, p[name + "linear_fc1.weight"], p.get(name + "linear_fc1.bias"))
    if llama:
        gate, up = h.chunk(2, -1)
        h = torch.nn.functional.silu(gate) * up
    else:
        h = torch.nn.functional.gelu(h, approximate="tanh")
    return torch.nn.functional.linear(h, p[name + "linear_fc2.weight"], p.get(name + "linear_fc2.bias"))


def losses(p, llama, head, groups):
    x = p["embedding.word_embeddings.weight"][IDS]
    if not llama:
        x = x + p["embedding.position_embeddings.weight"][None]
    for i in range(L):
        n = f"decoder.layers.{i}."
        x = x + attention(norm(x, p, n + "input_layernorm", llama), p, n + "self_attention.", llama, head, groups)
        x = x + mlp(norm(x, p, n + "pre_mlp_layernorm", llama), p, n + "mlp.", llama)
    x = norm(x, p, "decoder.final_layernorm", llama)
    table = p["output_layer.weight"] if llama else p["embedding.word_embeddings.weight"]
    return torch.nn.functional.cross_entropy((x @ table.T).view(-1, V), LABELS.view(-1), reduction="none")


def emit(title, llama, head, groups):
    p = parameters(llama, head, groups)
    loss = losses(p, llama, head, groups)
    (loss * MASK.view(-1)).sum().backward()
    print(f"inline const PytorchNumbers k{title} = {{")
    print("    {" + ", ".join(f"{v:.17g}" for v in loss.tolist()) + "},")
    print("    {")
    for name, value in p.items():
        g = value.grad.flatten()
        wave = torch.tensor([math.cos(0.37 * i) for i in range(g.numel())])
        print(f'        {{"{name}", {g.norm().item():.17g}, {(g * wave).sum().item():.17g}}},')
    print("    }};")


print("// Losses and gradients of two tiny models by PyTorch in double; written by make_pytorch_numbers.py.")
print("#pragma once\n\n#include <string>\n#include <vector>\n")
print("namespace megatron::testing {\n")
print("struct GradientNumbers {\n  std::string name;\n  double norm;    // of the gradient\n  double wave;    // its sum weighted by cos(0.37·i)\n};\n")
print("struct PytorchNumbers {\n  std::vector<double> losses;  // of each token, unmasked\n  std::vector<GradientNumbers> gradients;  // of the sum of mask·loss, in the order of k\n};\n")
emit("Gpt", False, 3, 4)
print()
emit("Llama", True, 4, 2)
print("\n}  // namespace megatron::testing")
