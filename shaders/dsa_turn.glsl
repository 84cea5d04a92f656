// Value d of the vector at key[from], its first n_rot values turned in pairs that are p.apart apart
float turned(uint from, uint d, uint pos) {
    float own = key[from + d];
    if (d >= p.n_rot) return own;
    bool first = p.apart == 1u ? (d & 1u) == 0u : d < p.apart;
    uint pair = p.apart == 1u ? d / 2u : d % p.apart;
    vec2 cs = rope[pos * (p.n_rot / 2u) + pair];
    return first ? own * cs.x - key[from + d + p.apart] * cs.y
                 : key[from + d - p.apart] * cs.y + own * cs.x;
}
